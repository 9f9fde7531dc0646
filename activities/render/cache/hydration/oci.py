"""Unpack a model pack (KitOps, ModelPack) from a registry into a volume.

The program is a shell script and not Python, because the image of the tool contains
nothing else. Every value is an environment variable and is quoted where it is used.

The tool runs in the background, because a shell runs no trap while it waits for a
foreground program. Files that the tool left from an earlier attempt may help it, or may
only fill the volume. Therefore a volume counts as too small only if it was full without
any such files.

A tag is first resolved to a digest, and the pack of that digest is unpacked. The
kubelet records the digest in the status of the pod, as it does with the commits of
hubs. If the tool or registry reports no digest, the tag itself is unpacked. The text
for a digest contains none of this, because a change of it would replace running pods.
"""

# The digest of the manifest is at the top level of the tool's output. The digests of
# its parts are indented deeper.
_RESOLVE = r"""set -- inspect --remote "$MODELPLANE_IMAGE"
if [ "$MODELPLANE_PLAIN_HTTP" = true ]; then
  set -- "$@" --plain-http
fi
kit "$@" >"$log" 2>/dev/null &
tool=$!
if wait "$tool"; then
  MODELPLANE_REVISION="$(
    sed -n -E 's/^  "digest": "(sha256:[0-9a-f]{64})",?$/\1/p' "$log" | head -n 1
  )"
fi
tool=""
if [ -n "$MODELPLANE_REVISION" ]; then
  name="${MODELPLANE_IMAGE##*/}"
  MODELPLANE_IMAGE="${MODELPLANE_IMAGE%"$name"}${name%%:*}@$MODELPLANE_REVISION"
fi
"""
_REPORT = r"""if [ -w /dev/termination-log ]; then
  sed -n -E 's/.*"commit": "([^"]*)".*/\1/p' "$marker" >/dev/termination-log
fi
"""
_TEXT = r"""set -eu
tool=""
terminate() {
  if [ -n "$tool" ]; then kill "$tool" 2>/dev/null || true; fi
  echo "stopped by SIGTERM: the next attempt goes on" >&2
  exit 143
}
unwritable() {
  echo "root may not write to the volume: set no_root_squash on its file server" >&2
  exit 1
}
trap terminate TERM
marker="$MODELPLANE_TARGET/.modelplane-hydrated"
if [ -f "$marker" ] && grep -qF "\"artefactKey\": \"$MODELPLANE_ARTEFACT_KEY\"" "$marker"; then
@report
  echo "already staged" >&2
  exit 0
fi
if ! command -v kit >/dev/null; then
  echo "the image of this container has no program kit:" \
    "set the platform's oci.kitImage to an image that has it" >&2
  exit 1
fi
mkdir -p "$KITOPS_HOME" || unwritable
kept="$(find "$KITOPS_HOME" -type f ! -name unpack.log | head -n 1)"
log="$KITOPS_HOME/unpack.log"
@resolve
set -- unpack "$MODELPLANE_IMAGE" -o -d "$MODELPLANE_TARGET"
if [ "$MODELPLANE_PLAIN_HTTP" = true ]; then
  set -- "$@" --plain-http
fi
kit "$@" >"$log" 2>&1 &
tool=$!
if ! wait "$tool"; then
  tail -c 900 "$log" >&2
  said="$(tr '[:upper:]' '[:lower:]' <"$log")"
  case "$said" in
    *"no space left"* | *"quota exceeded"*)
      if [ -z "$kept" ]; then exit 43; fi
      rm -rf "$KITOPS_HOME"
      echo "removed what an earlier attempt left: the next one has that space" >&2
      exit 1
      ;;
  esac
  # Ignore denials by the operating system, for a file ("open /a/b: permission denied")
  # or a connection: they are no answers of the registry.
  answered="$(printf '%s\n' "$said" | sed -E \
    -e 's,(^|[^:/[:alnum:]])/[^:]*: (permission denied|operation not permitted),\1not written,g' \
    -e 's,connect: permission denied,,g')"
  case "$answered" in
    *unauthorized* | *forbidden* | *denied* | *"authentication required"*) exit 41 ;;
    *"not found"* | *"manifest unknown"* | *"name unknown"*) exit 42 ;;
    *"not written"*) unwritable ;;
  esac
  exit 1
fi
own="$MODELPLANE_TARGET/.modelplane*"
if [ -z "$(find "$MODELPLANE_TARGET" -type f ! -path "$own" | head -n 1)" ]; then
  echo "the pack was unpacked, but holds no file" >&2
  exit 1
fi
rm -rf "$KITOPS_HOME"
rmdir "$MODELPLANE_TARGET/.modelplane" 2>/dev/null || true
printf '{"source": "OCI", "repo": "%s", "commit": "%s", "artefactKey": "%s", "finished": "%s"}\n' \
  "$MODELPLANE_IMAGE" "$MODELPLANE_REVISION" "$MODELPLANE_ARTEFACT_KEY" \
  "$(date -u +%Y-%m-%dT%H:%M:%SZ)" >"$marker.part"
sync
mv "$marker.part" "$marker"
@report
"""
PROGRAM = _TEXT.replace("@resolve\n", "").replace("@report\n", "")
BY_TAG = _TEXT.replace("@resolve\n", _RESOLVE).replace("@report\n", _REPORT)
