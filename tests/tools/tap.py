"""tap.py - results of a test written in Python, as TAP."""
count = failures = 0


def check(what, good, why=""):
    global count, failures
    count += 1
    failures += not good
    print("%sok %d - %s" % ("" if good else "not ", count, what))
    if not good:
        print("".join("# %s\n" % line for line in str(why).splitlines()), end="")


def done():
    """The exit code."""
    print("1..%d" % count)
    return failures > 0
