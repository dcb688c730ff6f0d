#!/bin/bash
# bash llm.sh INSTALL_FOLDER RESULT_FOLDER     the logs of llm (PyPI llm)
VERSION=${VERSION:-0.36}
. "$(dirname "$0")/lib.sh"
[ -x "$W/v/bin/llm" ] || { ${PYTHON:-python3} -m venv "$W/v" && "$W/v/bin/pip" install -q "llm==$VERSION"; }
export PATH="$W/v/bin:$PATH" LLM_USER_PATH=/home/ada/llm OPENAI_API_KEY=sk-fake
cat > "$W/script.json" <<'J'
{"#tools": [[["read_note", {"path": "notes.txt"}], ["count_lines", {"path": "notes.txt"}]], [["read_note", {"path": "missing.txt"}], ["no_such_tool", {"x": 1}]]],
 "#picture": [[["draw", {}]]],
 "#hang": [[["wait_long", {}]]]}
J
model "$W/script.json"
mkdir -p ~/llm
for name in fake-large fake-small claude-fake; do cat <<Y
- model_id: $name
  model_name: $name
  api_base: http://127.0.0.1:$PORT/v1
  supports_tools: true
  supports_schema: true
  vision: true
  reasoning: true
Y
done > ~/llm/extra-openai-models.yaml
cat > tools.py <<'P'
import pathlib, time
import llm
def read_note(path: str) -> str:
    "Reads a file."
    return pathlib.Path(path).read_text()
def count_lines(path: str) -> int:
    "Counts the lines of a file."
    return len(pathlib.Path(path).read_text().splitlines())
def wait_long() -> str:
    "Waits."
    time.sleep(45)
    return "waited"
def draw():
    "Draws a dot."
    return llm.ToolOutput(output="a dot", attachments=[llm.Attachment(path="/home/ada/garden/dot.png")])
P
dot dot.png
L="timeout -s INT 60 llm -m fake-large"
# The thread that has a prompt: the newest one.
last() { python3 -c 'import sqlite3;print(sqlite3.connect("/home/ada/llm/logs.db").execute("select thread_id from turns order by datetime_utc desc limit 1").fetchone()[0])'; }
say short; $L '#short What is in the notes?' </dev/null
say system; $L -s 'Be brief.' '#short Answer briefly.' </dev/null
say tools; $L --functions tools.py '#tools Read the notes and count.' </dev/null; S=$(last)
say resumed; llm --cid "$S" '#short And now?' </dev/null
say 'second model'; llm --cid "$S" -m fake-small '#short And with another model?' </dev/null
say 'not streamed'; $L --no-stream '#short In one piece.' </dev/null
say fragments; $L -f notes.txt --sf notes.txt '#short What is in the fragment?' </dev/null; llm -c '#short And once more?' </dev/null
say image; $L '#short What is in the picture?' -a dot.png </dev/null; llm -c '#short And what colour?' </dev/null
say 'image of a tool'; $L --functions tools.py '#picture Draw a dot.' </dev/null
say schema; $L --schema 'name, age int' '#short Invent a dog.' </dev/null
say chat; printf '#short First of a chat.\n#short Second of a chat.\nexit\n' | timeout -s INT 60 llm chat -m fake-large
say 'ctrl-c amid an answer'; killed INT 4 llm -m fake-large '#slow Tell a story.'
say 'killed amid an answer'; killed KILL 4 llm -m fake-large '#slow Tell another story.'
say 'killed amid a tool'; killed KILL 4 llm -m fake-large --functions tools.py '#hang Wait a while.'
say forked; llm --cid "$S" '#short The last one.' </dev/null
llm logs --json -n 0 > "$W/logs.json"
llm logs -n 3
keep "$W/logs.json" logs.json
for f in ~/llm/logs.db*; do keep "$f" "$(basename "$f")"; done
finish
all_there '#short What is in the notes?' '#short Answer briefly.' '#tools Read the notes and count.' '#short And now?' \
  '#short And with another model?' '#short In one piece.' '#short What is in the fragment?' '#short And once more?' '#short What is in the picture?' \
  '#short And what colour?' '#picture Draw a dot.' '#short Invent a dog.' '#short Second of a chat.' '#short The last one.'
