"""Prompts and what pipelines of diffusers make of them before their tokenizers, with ftfy and
Beautiful Soup.

captions.txt has four texts a line, with tabs between them: the prompt, str.lower().strip(),
prompt_clean of Wan, and _clean_caption of PixArt, applied twice. Control characters and backslashes
are written as \\xHH. What a parser refuses is left out.
"""
import random

from .tok import escaped

PROMPTS = [
    "", " ", "A Photo of a Cat", "a photo (best quality:1.2), [blurry], {soft|hard}",
    "\u201cq\u201d",
    "www.example.com/cat.png a cat", "https://x.org/a?b=c", "me@mail.com and @artist_1",
    "#1 #12345 x",
    "192.168.0.1 a city", "a 1024x768 photo, 35mm f/1.4", "10.5\u044520 \u00d7 3\u00d74",
    "IMG_0001.JPG",
    "jc6640 6640vc231 jc6640vc j2d1a2a", "free shipping worldwide", "free download", "click on it",
    "page 12 : a king", "a-b-c-d-e", "a_b_c_d", "one - two", "\u4e00\u53ea\u732b a cat \u3231",
    "caf\u00e9 na\u00efve \u0130stanbul \u03a3\u0391\u03a3", "5.5 a.b a,b 1,000", "...",
    "a . b .. c", "'x'",
    "\"a cat\"", "'_a_'", ".hidden", "a+b%20c%C3%A9%C3x%zz%e4%b8%ad", "%f0%9f%98", "<person> walks",
    "<b>bold</b> <i>it", "a < b > c", "<3 x", "<br>a<br/>b</br>", "a<!-- c -->b", "a<!-- b",
    "<!doctype x>y",
    "<![cdata[z]]>", "<script>a</script>b", "<style>a", "<rt>a</rt>b", "<pre>  </pre>",
    "<p> \n </p>",
    "<a b='c>d' e>f", "<a b=\"c", "</ p>x", "</>x", "<a<b>c",
    "<a b= 'c d>e", "<a b=='c d>e'", "<a\x0bb/c='d'e='>'f>g", "<a 'b'>c <a b='<d e=\"f>g",
    "<a b=<c d=<e f", "<a\u2003b=\u2003'c'/ >d", "<a b='c'd=\"e\"/>f </a b/>g",
    "&copy 2020 &eacute;&EACUTE; &notit;", "a &b",
    "&#233;&#x1F600; &#147;q&#148; &#1; &#xD800; &#59; &#", "&amp;amp;lt;b&amp;gt;", "&quot;x&quot",
    "\u00e2\u0080\u009cquoted\u00e2\u0080\u009d", "sch\u00c3\u00b6n", "voil\u00c3 le travail",
    "\u00e2\u20ac\u0153like this\u00e2\u20ac\ufffd", "\u00d0\u00bc\u00d0\u00be\u00d1\u0081",
    "\u0432\u0402\u201c",
    "\u201a\u00c4\u00f2x\u201a\u00c4\u00f4", "\u0393\u2021\u00ac", "\u00c3\u00a0 \u00c2 la",
    "\x1b[31mred\x1b[0m",
    "\x85 \x92 \x99", "\u0132 \u01c4 \ufb01ne \u0149",
    "\uff21\uff22\u3000\uff83\uff9e\uff9e \uffe3", "a\r\nb\rc\u2028d",
    "\ufeffx\u2060\u200by", "a\u0301 e\u0301", "it\u2019s \u2018so\u2019 \u2014 \u2013",
    "\u00a0 x\u3000", "\u1e9e\u00df &szlig; &SZLIG;",
]
SETS = ["latin-1", "cp1252", "cp1251", "cp1250", "cp1253", "cp1254", "cp1257", "iso-8859-2",
        "mac-roman", "cp437"]
TEXTS = ["\u201cit\u2019s\u201d a caf\u00e9", "\u041c\u043e\u0441\u043a\u0432\u0430 \u2014",
         "\u6771\u4eac\u306e\u591c", "\u03a7\u03c1\u03ce\u03bc\u03b1",
         "\u017elu\u0165ou\u010dk\u00fd \u0141\u00f3d\u017a", "\u0130\u011f\u00fc\u015f",
         "\u00e0 la \u00e0s", "\U0001f600 \u2714\ufe0f", "5 \u20ac \u00bd \u2026",
         "\u0645\u0631\u062d\u0628\u0627", "\u0928\u092e\u0938\u094d\u0924\u0947", "\ud55c\uad6d"]
PARTS = ["<b>", "</b>", "<p ", "/>", ">", "<!--", "-->", "&amp;", "&lt", "&#65;", "a", "Red Fox",
         " ", "\n", ".com", "x.png", "12x9", "1234567", "#99", "@me", "\u2014", "\u00ab",
         "\u4e2d", "(", "/", "*", "_", "-", ":", ",", ".", "'", "\"", "%20", "+", "\u00c3\u00a9",
         "\u00e2\u20ac", "\u0660\u0661", "\u00b2", "free", "page 1"]


def misread(rng):
    """A text that was read in a wrong character set, once or twice."""
    text = rng.choice(TEXTS)
    for _ in range(rng.randrange(1, 3)):
        text = text.encode().decode(rng.choice(SETS), rng.choice(["replace", "ignore"]))
    return text.replace("\xa0", " ") if rng.random() < 0.2 else text


def prompts():
    rng = random.Random(5)
    made = [misread(rng) + rng.choice(["", " and " + rng.choice(TEXTS)]) for _ in range(200)]
    made += ["".join(rng.choice(PARTS) for _ in range(rng.randrange(2, 9))) for _ in range(300)]
    return list(dict.fromkeys(PROMPTS + made))


def make(names, options):
    from diffusers import PixArtAlphaPipeline
    from diffusers.pipelines.wan.pipeline_wan import prompt_clean

    class Cleaner:
        bad_punct_regex = PixArtAlphaPipeline.bad_punct_regex
        clean = PixArtAlphaPipeline._clean_caption

    lines = []
    for text in prompts():
        try:
            web = Cleaner().clean(Cleaner().clean(text))
        except Exception:               # bs4.ParserRejectedMarkup and what it is made of
            continue
        row = [text, text.lower().strip(), prompt_clean(text), web]
        lines.append("\t".join(map(escaped, row)))
    (options.out / "captions.txt").write_bytes(("\n".join(lines) + "\n").encode())
