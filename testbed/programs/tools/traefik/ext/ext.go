// Package ext adds nothing to the dynamic configuration.
package ext

// HTTP has no fields.
type HTTP struct{}

// Router has no fields.
type Router struct{}
