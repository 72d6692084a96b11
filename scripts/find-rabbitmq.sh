# Sourced. Where RabbitMQ's own scripts are.

# Prints the folder of rabbitmq-server and rabbitmqctl, or fails. The ones on PATH will not always do: Debian puts a
# wrapper there that changes the user when root calls it, and refuses everybody else. The real ones have rabbitmq-env
# beside them.
rabbitmq_folder() {
  local on_path folder
  on_path=$(command -v rabbitmq-server || echo /usr/sbin/rabbitmq-server) # sbin is not in everybody's PATH
  for folder in \
    "$(dirname "$(readlink -f "$on_path" 2>/dev/null || echo "$on_path")")" \
    /usr/lib/rabbitmq/bin \
    /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin \
    /opt/rabbitmq/sbin \
    /opt/homebrew/opt/rabbitmq/sbin \
    /usr/local/opt/rabbitmq/sbin \
    /home/linuxbrew/.linuxbrew/opt/rabbitmq/sbin; do
    if [ -x "$folder/rabbitmq-server" ] && [ -x "$folder/rabbitmqctl" ] && [ -f "$folder/rabbitmq-env" ]; then
      echo "$folder"
      return 0
    fi
  done
  return 1
}
