// Package ecs reads nothing from Amazon ECS: the testbed's routes come from Kubernetes.
package ecs

import (
	"errors"

	"github.com/traefik/traefik/v3/pkg/config/dynamic"
	"github.com/traefik/traefik/v3/pkg/safe"
)

// ProviderName is the name of this provider.
const ProviderName = "ecs"

// Provider refuses to start.
type Provider struct{}

// SetDefaults has nothing to set.
func (p *Provider) SetDefaults() {}

// Init refuses.
func (p *Provider) Init() error {
	return errors.New("ECS: this build of the testbed does not read it")
}

// Provide is never reached.
func (p *Provider) Provide(chan<- dynamic.Message, *safe.Pool) error {
	return p.Init()
}
