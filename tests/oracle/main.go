// The oracle answers what Kubernetes itself says about a device selector, a quantity or a version.
//
// It reads one JSON question per line and writes one JSON answer per line, in order, so that the tests of the Python
// package can compare thousands of cases with the real compiler in one process. It decides nothing on its own.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/blang/semver/v4"
	"gopkg.in/inf.v0"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
)

// maxLineBytes is far above the longest legal selector (10 KiB) even when every byte of it is escaped.
const maxLineBytes = 16 << 20

type attribute struct {
	String  *string `json:"string,omitempty"`
	Bool    *bool   `json:"bool,omitempty"`
	Int     *int64  `json:"int,omitempty"`
	Version *string `json:"version,omitempty"`
}

type device struct {
	Driver     string               `json:"driver"`
	Attributes map[string]attribute `json:"attributes"`
	Capacity   map[string]string    `json:"capacity"`
	// AllowMultipleAllocations is false in Kubernetes when it is not set.
	AllowMultipleAllocations *bool `json:"allowMultipleAllocations,omitempty"`
}

type question struct {
	Selector *string  `json:"selector,omitempty"` // with Devices
	Devices  []device `json:"devices,omitempty"`
	// WithoutConsumableCapacity compiles the selector as a new one with the gate DRAConsumableCapacity off.
	WithoutConsumableCapacity bool `json:"without_consumable_capacity,omitempty"`

	Quantity *string `json:"quantity,omitempty"`
	Version  *string `json:"version,omitempty"`
	// A second version turns the question into a comparison.
	Against *string `json:"against,omitempty"`
}

type outcome struct {
	Matched bool    `json:"matched"`
	Error   string  `json:"error,omitempty"`
	Cost    *uint64 `json:"cost,omitempty"` // absent when evaluation never started
}

type answer struct {
	// Error says why the text was refused; nothing else is set then.
	Error   string    `json:"error,omitempty"`
	Type    string    `json:"type,omitempty"`
	MaxCost uint64    `json:"max_cost"`
	Devices []outcome `json:"devices,omitempty"`
	// Nano is the quantity in nano-units as decimal digits: it may exceed 64 bits.
	Nano string `json:"nano,omitempty"`
	// Order is -1, 0 or 1 for a comparison of two versions.
	Order *int `json:"order,omitempty"`
}

func toDevice(d device) (dracel.Device, error) {
	result := dracel.Device{
		Driver:                   d.Driver,
		AllowMultipleAllocations: d.AllowMultipleAllocations,

		Attributes: make(map[resourceapi.QualifiedName]resourceapi.DeviceAttribute, len(d.Attributes)),
		Capacity:   make(map[resourceapi.QualifiedName]resourceapi.DeviceCapacity, len(d.Capacity)),
	}
	for name, value := range d.Attributes {
		result.Attributes[resourceapi.QualifiedName(name)] = resourceapi.DeviceAttribute{
			StringValue: value.String, BoolValue: value.Bool, IntValue: value.Int, VersionValue: value.Version,
		}
	}
	for name, text := range d.Capacity {
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return result, fmt.Errorf("capacity %s: %w", name, err)
		}
		result.Capacity[resourceapi.QualifiedName(name)] = resourceapi.DeviceCapacity{Value: quantity}
	}
	return result, nil
}

func evaluate(compiled dracel.CompilationResult, d device) outcome {
	input, err := toDevice(d)
	if err != nil {
		return outcome{Error: err.Error()}
	}
	matched, details, err := compiled.DeviceMatches(context.Background(), input)
	result := outcome{Matched: matched}
	if err != nil {
		result = outcome{Error: err.Error()}
	}
	if details != nil {
		result.Cost = details.ActualCost()
	}
	return result
}

func askSelector(selector string, devices []device, consumableCapacity bool) answer {
	features := dracel.Features{EnableConsumableCapacity: consumableCapacity}
	options := dracel.Options{}
	if !consumableCapacity {
		// Expressions that are stored already keep what gates have allowed before; new ones do not.
		options.EnvType = ptr.To(environment.NewExpressions)
	}
	compiled := dracel.GetCompiler(features).CompileCELExpression(selector, options)
	if compiled.Error != nil {
		return answer{Error: compiled.Error.Error()}
	}
	result := answer{Type: compiled.OutputType.String(), MaxCost: compiled.MaxCost}
	for _, d := range devices {
		result.Devices = append(result.Devices, evaluate(compiled, d))
	}
	return result
}

func askQuantity(text string) answer {
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return answer{Error: err.Error()}
	}
	// Parsing has rounded to nano-units already, so at scale 9 the unscaled value is exact.
	nano := new(inf.Dec).Round(quantity.AsDec(), 9, inf.RoundExact)
	if nano == nil {
		return answer{Error: "the oracle cannot express " + text + " in nano-units"}
	}
	return answer{Nano: nano.UnscaledBig().String()}
}

func askVersion(text string, against *string) answer {
	left, err := semver.Parse(text)
	if err != nil {
		return answer{Error: err.Error()}
	}
	if against == nil {
		return answer{Type: left.String()}
	}
	right, err := semver.Parse(*against)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Type: left.String(), Order: ptr.To(left.Compare(right))}
}

// ask also answers when the code under question panics, as cel-go does over bytes as the key of a constant map: to whoever
// asked Kubernetes that selector, it was refused.
func ask(q question) (reply answer) {
	defer func() {
		if cause := recover(); cause != nil {
			reply = answer{Error: fmt.Sprintf("panic: %v", cause)}
		}
	}()
	switch {
	case q.Selector != nil:
		return askSelector(*q.Selector, q.Devices, !q.WithoutConsumableCapacity)
	case q.Quantity != nil:
		return askQuantity(*q.Quantity)
	case q.Version != nil:
		return askVersion(*q.Version, q.Against)
	default:
		return answer{Error: "the question names neither a selector, a quantity nor a version"}
	}
}

func run() error {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), maxLineBytes)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	for lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return fmt.Errorf("question is not JSON: %w", err)
		}
		if err := encoder.Encode(ask(q)); err != nil {
			return err
		}
		// Flushed per line: a test asks one question at a time and waits for its answer.
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return lines.Err()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}
