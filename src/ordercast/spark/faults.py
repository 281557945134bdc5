"""What went wrong inside Spark, as one line: its errors are pages of Java's stack, with the reason in the middle."""

import re

MEMORY = "give it more: --conf spark.driver.memory=4g"
KNOWN = (
    (re.compile(r"OutOfMemoryError"), f"Java has run out of memory; {MEMORY}"),
    (re.compile(r'Cannot run program "([^"]+)"'), r"executors cannot run \1: PYSPARK_PYTHON names their Python"),
    (re.compile(r"reading the port number from pyspark\.daemon"),
     "the Python of executors does not run PySpark: PYSPARK_PYTHON names it"),
    (re.compile(r"dagScheduler\(\)\" is null|SparkContext was shut down|Answer from Java side is empty"),
     f"it has stopped, perhaps because Java ran out of memory; {MEMORY}"),
    (re.compile(r"Python in worker has different version:? ?(.*)"),
     "executors have another version of Python than this process: PYSPARK_PYTHON names theirs"),
    (re.compile(r"ModuleNotFoundError: No module named '([^']+)'"), r"the Python of executors has no module \1"),
    (re.compile(r"(?:FileNotFoundException|FileNotFoundError)\S* (.*)"),
     r"an executor does not find a file: \1; all must see the same folder"),
)  # fmt: skip
PYTHON = re.compile(r"^(?!Traceback|Caused by)[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)\b.*", re.MULTILINE)
JAVA = re.compile(r"^(?:Caused by: |: )?(?:[\w$]+\.)+[\w$]*(?:Exception|Error)\b:? ?(.*)", re.MULTILINE)


def reason(text: str) -> str:
    """Return the line that says why, with what to do where that is known."""
    for pattern, says in KNOWN:
        found = pattern.search(text)
        if found is not None:
            return found.expand(says)
    if "Traceback (most recent call last)" in text:
        lines = PYTHON.findall(text[text.rindex("Traceback (most recent call last)") :])
        if lines:
            return str(lines[-1]).strip()
    causes = [match for match in JAVA.findall(text) if match.strip()]
    if causes:
        return str(causes[-1]).strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")
