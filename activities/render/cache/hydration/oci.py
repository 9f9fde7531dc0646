"""Unpack a model pack (KitOps, ModelPack) from a registry into a volume.

A shell text and not Python, because the image that carries the tool carries nothing else. Every value arrives by environment and is
quoted where it is used.
"""

PROGRAM = r"""set -eu
marker="$MODELPLANE_TARGET/.modelplane-hydrated"
if [ -f "$marker" ] && grep -qF "\"artefactKey\": \"$MODELPLANE_ARTEFACT_KEY\"" "$marker"; then
  echo "already staged" >&2
  exit 0
fi
mkdir -p "$KITOPS_HOME"
log="$KITOPS_HOME/unpack.log"
set -- unpack "$MODELPLANE_IMAGE" -o -d "$MODELPLANE_TARGET"
if [ "$MODELPLANE_PLAIN_HTTP" = true ]; then
  set -- "$@" --plain-http
fi
if ! kit "$@" >"$log" 2>&1; then
  tail -c 1000 "$log" >&2
  case "$(tr '[:upper:]' '[:lower:]' <"$log")" in
    *"no space left"* | *"quota exceeded"*) exit 43 ;;
    *unauthorized* | *forbidden* | *denied* | *"authentication required"*) exit 41 ;;
    *"not found"* | *"manifest unknown"* | *"name unknown"*) exit 42 ;;
  esac
  exit 1
fi
if [ -z "$(find "$MODELPLANE_TARGET" -type f ! -path "$MODELPLANE_TARGET/.modelplane*" | head -n 1)" ]; then
  echo "the pack was unpacked, but holds no file" >&2
  exit 1
fi
rm -rf "$KITOPS_HOME"
printf '{"source": "OCI", "repo": "%s", "commit": "%s", "artefactKey": "%s", "finished": "%s"}\n' \
  "$MODELPLANE_IMAGE" "$MODELPLANE_REVISION" "$MODELPLANE_ARTEFACT_KEY" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" >"$marker.part"
sync
mv "$marker.part" "$marker"
"""
