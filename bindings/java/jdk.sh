# For scripts: find_jdk prints the home of a JDK of version 22 or later (JAVA_HOME, then /usr/lib/jvm);
# compile_java JDK FOLDER FILES compiles the binding without a warning.
find_jdk() {
  local home version
  for home in ${JAVA_HOME:+"$JAVA_HOME"} /usr/lib/jvm/*; do
    [ -x "$home/bin/javac" ] || continue
    version=$("$home/bin/javac" -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')
    if [ "${version:-0}" -ge 22 ]; then
      echo "$home"
      return 0
    fi
  done
  return 1
}

compile_java() {
  local jdk=$1 out=$2
  shift 2
  mkdir -p "$out"
  "$jdk/bin/javac" --release 22 -Xlint:all -Werror -d "$out" "$@"
}
