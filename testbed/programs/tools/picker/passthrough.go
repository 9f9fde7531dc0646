// Package passthrough takes the place of the picker's own parser without a format.
//
// The pinned picker of the product tries several parsers and takes the first that knows the path
// of a request; the last one passes every body through. This older picker has one parser. The one
// here reads the paths of OpenAI's API as the openai-parser does, and passes all others through.
package passthrough

import (
	"context"
	"encoding/json"
	"strings"

	fwkplugin "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/plugin"
	fwkrh "sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/requesthandling"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/interface/scheduling"
	"sigs.k8s.io/gateway-api-inference-extension/pkg/epp/framework/plugins/requesthandling/parsers/openai"
)

// PassthroughParserType is the name of the plugin.
const PassthroughParserType = "passthrough-parser"

var known = []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"}

// PassthroughParser reads known paths, and passes others through.
type PassthroughParser struct {
	name string
	own  *openai.OpenAIParser
}

var _ fwkrh.Parser = &PassthroughParser{}

// NewPassthroughParser returns a parser with the name of its type.
func NewPassthroughParser() *PassthroughParser {
	return &PassthroughParser{PassthroughParserType, openai.NewOpenAIParser()}
}

// PassthroughParserPluginFactory returns a parser with a name.
func PassthroughParserPluginFactory(name string, _ json.RawMessage, _ fwkplugin.Handle) (fwkplugin.Plugin, error) {
	return NewPassthroughParser().WithName(name), nil
}

// TypedName returns the type and the name of the plugin.
func (p *PassthroughParser) TypedName() fwkplugin.TypedName {
	return fwkplugin.TypedName{Type: PassthroughParserType, Name: p.name}
}

// WithName sets the name of the plugin.
func (p *PassthroughParser) WithName(name string) *PassthroughParser {
	p.name = name
	return p
}

// ParseRequest reads the body of a known path.
func (p *PassthroughParser) ParseRequest(
	ctx context.Context, body []byte, headers map[string]string,
) (*scheduling.LLMRequestBody, error) {
	for _, path := range known {
		if strings.HasSuffix(headers[":path"], path) {
			return p.own.ParseRequest(ctx, body, headers)
		}
	}
	return &scheduling.LLMRequestBody{Payload: scheduling.RawPayload(body)}, nil
}

// ParseResponse returns the usage in a response that has the format of OpenAI's API.
func (p *PassthroughParser) ParseResponse(
	ctx context.Context, body []byte, headers map[string]string, end bool,
) (*fwkrh.ParsedResponse, error) {
	if found, err := p.own.ParseResponse(ctx, body, headers, end); err == nil {
		return found, nil
	}
	return nil, nil
}
