# Sourced by scripts/run and scripts/test, with `root` set: a folder of one run's own, with a RabbitMQ node in it, that
# is gone when the script ends, however it ends.
source "$root/scripts/shared-checkout.sh"

stopped=0 # the exit status once we are told to stop: nothing new is begun then

# Sets run_folder, and REACH_AMQP_URL unless the caller brought a broker.
begin_run() {
  local mine
  mine=$(own_folder "$root")
  run_folder=$(mktemp -d "$mine/run.XXXXXX")
  trap end_run EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  if [ -n "${REACH_AMQP_URL:-}" ]; then return 0; fi
  REACH_AMQP_URL=$(REACH_BROKER_DIR=$run_folder "$root/scripts/broker" start --scratch --owner-pid $$)
  export REACH_AMQP_URL
  echo "private RabbitMQ node: $REACH_AMQP_URL" >&2
}

end_run() {
  local status=$?
  trap '' INT TERM HUP # this has to come to its end
  REACH_BROKER_DIR=$run_folder "$root/scripts/broker" stop || true
  rm -rf "$run_folder"
  exit $status
}

# Runs a command, hands on the signals that this script gets meanwhile, and returns the command's status. A script that
# simply waited for its command would sleep through a SIGTERM that is meant for both. The command carries the mark of
# the node's own processes (see scripts/broker), so that the two are stopped together, even if this script is killed.
forward() { # COMMAND...
  local status=0
  set -- env "PRIVATE_NODE_FOLDER=$run_folder" "$@"
  if [ $stopped -ne 0 ]; then return $stopped; fi
  if [ -t 0 ]; then # in our process group, or it could not read the keyboard; Ctrl-C reaches it without us
    (trap - INT && exec "$@") <&0 &
    child=$! target=$!
    trap 'stopped=130' INT
  else # in a group of its own, or a signal to our whole group would reach it twice
    set -m
    "$@" <&0 &
    child=$! target=-$!
    set +m
    trap 'stopped=130; pass_on INT' INT
  fi
  trap 'stopped=143; pass_on TERM' TERM HUP
  while kill -0 "$child" 2>/dev/null; do wait "$child" || true; done
  wait "$child" || status=$?
  trap 'stopped=130' INT
  trap 'stopped=143' TERM HUP
  return $status
}

pass_on() { # SIGNAL
  kill "-$1" -- "$target" 2>/dev/null || true # ended by itself just now
}
