# Sourced. What lets several runs, and several people, use one checkout at once: a lock, and a folder for each user.

# Waits for the lock on FILE and holds it, on descriptor 9, until this script ends. Whatever is meant to outlive the
# script has to be started with 9>&-, or it would hold the lock on.
hold_lock() { # FILE
  exec 9<"$1" # reading is enough for a lock, so the file may be somebody else's
  if command -v flock >/dev/null; then
    flock 9
  else # macOS
    perl -e 'open(my $file, "<&=", 9) && flock($file, 2) or die "cannot lock: $!\n"'
  fi
}

# Prints this user's folder in the checkout, and makes it. What lies there is private: a node's cookie, logs, caches.
own_folder() { # ROOT
  local mine
  mine=$1/.reach/$(id -u)
  [ -d "$1/.reach" ] || mkdir -m 1777 "$1/.reach" 2>/dev/null || true # as /tmp: everybody who works here needs a place
  [ -d "$mine" ] || mkdir -p -m 700 "$mine" || return 1
  echo "$mine"
}
