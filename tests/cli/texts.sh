#!/bin/sh
# texts.sh XDIT ROOT GOLDEN - texts and names as people give them: prompts that are not UTF-8 or
# begin with dashes, captions that are cleaned, second prompts, "~", URLs, models of the cache, and
# tokenizers that do not belong to their encoders.
. "$(dirname "$0")/lib.sh"
GOLDEN=$3
latin=$(printf 'caf\351')

refused "a prompt in Latin-1" 2 "UTF-8 4 0xE9 iconv" generate --model "$MODEL" \
    --prompt "$latin" -o "$T/a.png"
refused "a negative prompt" 2 "negative_prompt UTF-8 0xE9" generate --model "$MODEL" --prompt a \
    --negative_prompt "$latin" -o "$T/a.png"
printf 'a dog\n%s\n' "$latin" >"$T/prompts.txt"
refused "a file in Latin-1" 2 "prompts.txt UTF-8 line 2 0xE9 iconv" generate --model "$MODEL" \
    --prompts "$T/prompts.txt" -o "$T/a.png"

generate --prompt "--ar 16:9 a red circle" -o "$T/a.png"
check "a prompt that begins with dashes" [ "$rc" = 0 ]
refused "one word with dashes" 2 "--prompt=" generate --model "$MODEL" --prompt --red -o "$T/a.png"

# same A B: the same pixels?
same() { "$XDIT" compare "$1" "$2" | grep -q 'all levels are equal'; }
generate --prompt "a red circle (x)" -o "$T/cleaned.png"
generate --prompt "a red circle x" -o "$T/plain.png"
generate --prompt "a red circle (x)" --clean_caption false -o "$T/kept.png"
check "a caption is cleaned" same "$T/cleaned.png" "$T/plain.png"
check "and not with --clean_caption false" sh -c '! "$0" compare "$1" "$2" | grep -q "are equal"' \
    "$XDIT" "$T/kept.png" "$T/plain.png"

# Negative prompts go prompt by prompt; one goes to all.
how="--guidance_scale 4 --num_inference_steps 2"
generate $how --prompt "a dog" --prompt "a cat" -n red -n blue --json -o "$T/each.png"
check "each has its own" sh -c 'printf %s "$1" | tr "\\n" " " | grep -q "$2"' - "$out" \
    '"negative_prompt": "red".*"negative_prompt": "blue"'
generate $how --prompt "a dog" -n red -o "$T/first.png"
generate $how --prompt "a cat" -n blue --seed 1 -o "$T/second.png"
check "negative prompts, the first" same "$T/each_0001.png" "$T/first.png"
check "and the second" same "$T/each_0002.png" "$T/second.png"
generate $how --prompt "a dog" --prompt "a cat" -n blue -o "$T/all.png"
check "one for all" same "$T/all_0002.png" "$T/second.png"
printf 'a dog\na cat\n' >"$T/two.txt"
generate $how --prompts "$T/two.txt" -n red -n blue -o "$T/file.png"
check "of prompts of a file" same "$T/file_0002.png" "$T/second.png"
mkdir -p "$T/skip" && cp "$T/each_0001.png" "$T/skip/x_0001.png"
generate $how --prompt "a dog" --prompt "a cat" -n red -n blue --skip_existing -o "$T/skip/x.png"
check "where the first image is there" same "$T/skip/x_0002.png" "$T/second.png"
refused "a list with a text in Latin-1" 2 "negative_prompt 2 UTF-8 0xE9" generate --model "$MODEL" \
    --prompt a --prompt b -n x -n "$latin" -o "$T/a.png"
refused "a model with one prompt" 2 "prompt_2 FLUX Stable pixart" generate --model "$MODEL" \
    --prompt a --prompt_2 b -o "$T/a.png"

refused "~ in quotes" 1 "~/x \\\$HOME" generate --model '~/x' --prompt a -o "$T/a.png"
refused "~ of an output" 1 "~/a.png \\\$HOME" generate --model "$MODEL" --prompt a -o '~/a.png'
refused "a URL" 1 "https://x.org/a.png download" generate --model "$MODEL" --prompt a \
    --image https://x.org/a.png -o "$T/a.png"

hub=$T/hub/models--me--tiny/snapshots
mkdir -p "$hub"
ln -s "$MODEL" "$hub/abc"
export HF_HUB_CACHE="$T/hub"
for name in me/tiny me/tiny/ tiny; do
    generate --model "$name" --prompt a -o "$T/a.png"
    check "$name: the only snapshot of the cache" [ "$rc" = 0 ]
done
ln -s "$MODEL" "$hub/abd"
refused "two snapshots and no main" 1 "2 refs/main me/tiny@" generate --model me/tiny --prompt a \
    -o "$T/a.png"
try generate --model me/tiny@abd --prompt a --num_inference_steps 2 --quiet -o "$T/a.png"
check "a snapshot by its name" [ "$rc" = 0 ]

# other FILE STATEMENT: a model whose JSON file `j` is changed so.
other() {
    rm -rf "$T/zimage"
    cp -rL "$GOLDEN/zimage" "$T/zimage"
    python3 -c 'import json, sys
j = json.load(open(sys.argv[1]))
exec(sys.argv[2])
json.dump(j, open(sys.argv[1], "w"))' "$T/zimage/$1" "$2"
}
other tokenizer/tokenizer.json 'j["added_tokens"] += [dict(j["added_tokens"][0],
    content="<|other%d|>" % i, id=270 + i) for i in range(40)]'
refused "an id that the encoder has no row for" 1 "tokenizer text_encoder vocab_size 309 288" \
    generate --model "$T/zimage" --prompt "a <|other39|>" --width 32 --height 32 -o "$T/a.png"
other tokenizer/tokenizer.json 'j["pre_tokenizer"]["pretokenizers"].insert(0, {"type": "Split",
    "pattern": {"Regex": "(?:a|aa)+[bc]"}, "behavior": "Isolated", "invert": False})'
refused "an expression without end" 1 "tokenizer/tokenizer.json PCRE2 expression" generate \
    --model "$T/zimage" --prompt "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaad" --width 32 \
    --height 32 -o "$T/a.png"
done_testing
