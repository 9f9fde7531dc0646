// A stand-in for the extension server of Envoy AI Gateway, only for InferencePools.
// README.md says which of its behaviours are proven.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"slices"
	"strings"
	"time"

	extension "github.com/envoyproxy/gateway/proto/extension"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	connection "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	upstream "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	destinationHeader = "x-gateway-destination-endpoint"
	filterPrefix      = "envoy.filters.http.ext_proc/endpointpicker"
	routerFilter      = "envoy.filters.http.router"
	metadataKey       = "inference-extension"
	pickerPort        = 9002
	messageTimeout    = 300 * time.Second
	connectTimeout    = 10 * time.Second
)

// A pool is an InferencePool and the Service of its endpoint picker.
type pool struct {
	namespace, name, service string
	port                     uint32
}

func (p pool) key() string {
	return fmt.Sprintf("%s/%s/%s/%d", p.namespace, p.name, p.service, p.port)
}

func (p pool) filter() string { return filterPrefix + "/" + p.namespace + "/" + p.name }

func (p pool) cluster() string { return "endpointpicker/" + p.namespace + "/" + p.name }

func fromKey(key string) (found pool, err error) {
	parts := strings.Split(key, "/")
	if len(parts) != 4 {
		return found, fmt.Errorf("the mark %q of a route does not name a pool", key)
	}
	found = pool{namespace: parts[0], name: parts[1], service: parts[2]}
	_, err = fmt.Sscan(parts[3], &found.port)
	return found, err
}

// poolIn returns the only InferencePool among the resources, or nil.
func poolIn(resources []*extension.ExtensionResource) (*pool, error) {
	var found *pool
	for _, resource := range resources {
		var object struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
			Spec     struct {
				EndpointPickerRef struct {
					Name string
					Port struct{ Number uint32 }
				}
			}
		}
		if err := json.Unmarshal(resource.UnstructuredBytes, &object); err != nil {
			return nil, fmt.Errorf("a resource is not readable: %w", err)
		}
		if object.Kind != "InferencePool" {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("a rule with several InferencePools is not supported; the second is %s/%s",
				object.Metadata.Namespace, object.Metadata.Name)
		}
		picker := object.Spec.EndpointPickerRef
		found = &pool{object.Metadata.Namespace, object.Metadata.Name, picker.Name, pickerPort}
		if picker.Port.Number != 0 {
			found.port = picker.Port.Number
		}
	}
	return found, nil
}

type server struct {
	extension.UnimplementedEnvoyGatewayExtensionServer
}

// PostClusterModify makes the cluster of a pool send each request to the address in a header.
func (server) PostClusterModify(
	_ context.Context, request *extension.PostClusterModifyRequest,
) (*extension.PostClusterModifyResponse, error) {
	found, err := poolIn(request.GetPostClusterContext().GetBackendExtensionResources())
	if err != nil || found == nil {
		return &extension.PostClusterModifyResponse{Cluster: request.Cluster}, err
	}
	changed := request.Cluster
	changed.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_ORIGINAL_DST}
	changed.LbPolicy = cluster.Cluster_CLUSTER_PROVIDED
	changed.LbConfig = &cluster.Cluster_OriginalDstLbConfig_{
		OriginalDstLbConfig: &cluster.Cluster_OriginalDstLbConfig{
			UseHttpHeader: true, HttpHeaderName: destinationHeader,
		},
	}
	changed.ConnectTimeout = durationpb.New(connectTimeout)
	changed.EdsClusterConfig, changed.LoadAssignment, changed.LoadBalancingPolicy = nil, nil, nil
	return &extension.PostClusterModifyResponse{Cluster: changed}, nil
}

// PostRouteModify marks the routes of a pool for PostTranslateModify.
func (server) PostRouteModify(
	_ context.Context, request *extension.PostRouteModifyRequest,
) (*extension.PostRouteModifyResponse, error) {
	found, err := poolIn(request.GetPostRouteContext().GetExtensionResources())
	if err != nil || found == nil {
		return &extension.PostRouteModifyResponse{Route: request.Route}, err
	}
	mark, err := structpb.NewStruct(map[string]any{"pool": found.key()})
	if err != nil {
		return nil, err
	}
	if request.Route.Metadata == nil {
		request.Route.Metadata = &core.Metadata{}
	}
	if request.Route.Metadata.FilterMetadata == nil {
		request.Route.Metadata.FilterMetadata = map[string]*structpb.Struct{}
	}
	request.Route.Metadata.FilterMetadata[metadataKey] = mark
	return &extension.PostRouteModifyResponse{Route: request.Route}, nil
}

// PostTranslateModify adds the pickers: a cluster and a filter for each pool. A route leaves out
// the filters of all other pools.
func (server) PostTranslateModify(
	_ context.Context, request *extension.PostTranslateModifyRequest,
) (*extension.PostTranslateModifyResponse, error) {
	pools := map[string]pool{}
	for _, each := range routes(request.Routes) {
		if key := markOf(each); key != "" {
			found, err := fromKey(key)
			if err != nil {
				return nil, err
			}
			pools[key] = found
		}
	}
	sorted := make([]pool, 0, len(pools))
	for _, each := range pools {
		sorted = append(sorted, each)
	}
	slices.SortFunc(sorted, func(a, b pool) int { return strings.Compare(a.key(), b.key()) })
	if err := leaveOut(routes(request.Routes), sorted); err != nil {
		return nil, err
	}
	clusters := request.Clusters
	for _, each := range sorted {
		added, err := pickerCluster(each)
		if err != nil {
			return nil, err
		}
		clusters = append(clusters, added)
	}
	for _, each := range request.Listeners {
		if err := addFilters(each, sorted); err != nil {
			return nil, err
		}
	}
	return &extension.PostTranslateModifyResponse{
		Clusters: clusters, Secrets: request.Secrets, Listeners: request.Listeners, Routes: request.Routes,
	}, nil
}

func routes(configurations []*route.RouteConfiguration) (found []*route.Route) {
	for _, configuration := range configurations {
		for _, host := range configuration.VirtualHosts {
			found = append(found, host.Routes...)
		}
	}
	return found
}

func markOf(each *route.Route) string {
	return each.GetMetadata().GetFilterMetadata()[metadataKey].GetFields()["pool"].GetStringValue()
}

func leaveOut(all []*route.Route, pools []pool) error {
	disabled, err := anypb.New(&extproc.ExtProcPerRoute{
		Override: &extproc.ExtProcPerRoute_Disabled{Disabled: true},
	})
	if err != nil {
		return err
	}
	for _, each := range all {
		own := markOf(each)
		for _, other := range pools {
			if other.key() == own {
				continue
			}
			if each.TypedPerFilterConfig == nil {
				each.TypedPerFilterConfig = map[string]*anypb.Any{}
			}
			each.TypedPerFilterConfig[other.filter()] = disabled
		}
	}
	return nil
}

// addFilters adds the filter of each pool before the router.
func addFilters(changed *listener.Listener, pools []pool) error {
	chains := changed.FilterChains
	if changed.DefaultFilterChain != nil {
		chains = append(slices.Clone(chains), changed.DefaultFilterChain)
	}
	for _, chain := range chains {
		for _, filter := range chain.Filters {
			manager := &connection.HttpConnectionManager{}
			if !filter.GetTypedConfig().MessageIs(manager) {
				continue
			}
			if err := filter.GetTypedConfig().UnmarshalTo(manager); err != nil {
				return err
			}
			at := slices.IndexFunc(manager.HttpFilters, func(each *connection.HttpFilter) bool {
				return each.Name == routerFilter
			})
			if at < 0 {
				continue
			}
			for number, each := range pools {
				added, err := pickerFilter(each)
				if err != nil {
					return err
				}
				manager.HttpFilters = slices.Insert(manager.HttpFilters, at+number, added)
			}
			packed, err := anypb.New(manager)
			if err != nil {
				return err
			}
			filter.ConfigType = &listener.Filter_TypedConfig{TypedConfig: packed}
		}
	}
	return nil
}

func pickerFilter(of pool) (*connection.HttpFilter, error) {
	packed, err := anypb.New(&extproc.ExternalProcessor{
		GrpcService: &core.GrpcService{
			TargetSpecifier: &core.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &core.GrpcService_EnvoyGrpc{
					ClusterName: of.cluster(),
					Authority:   fmt.Sprintf("%s.%s.svc:%d", of.service, of.namespace, of.port),
				},
			},
		},
		ProcessingMode: &extproc.ProcessingMode{
			RequestHeaderMode:   extproc.ProcessingMode_SEND,
			RequestBodyMode:     extproc.ProcessingMode_FULL_DUPLEX_STREAMED,
			RequestTrailerMode:  extproc.ProcessingMode_SEND,
			ResponseHeaderMode:  extproc.ProcessingMode_SEND,
			ResponseBodyMode:    extproc.ProcessingMode_FULL_DUPLEX_STREAMED,
			ResponseTrailerMode: extproc.ProcessingMode_SEND,
		},
		MessageTimeout:   durationpb.New(messageTimeout),
		FailureModeAllow: false,
	})
	return &connection.HttpFilter{
		Name:       of.filter(),
		ConfigType: &connection.HttpFilter_TypedConfig{TypedConfig: packed},
	}, err
}

func pickerCluster(of pool) (*cluster.Cluster, error) {
	secured, err := anypb.New(&tls.UpstreamTlsContext{
		CommonTlsContext: &tls.CommonTlsContext{AlpnProtocols: []string{"h2"}},
	})
	if err != nil {
		return nil, err
	}
	protocol, err := anypb.New(&upstream.HttpProtocolOptions{
		UpstreamProtocolOptions: &upstream.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &upstream.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &upstream.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
					Http2ProtocolOptions: &core.Http2ProtocolOptions{},
				},
			},
		},
	})
	if err != nil {
		return nil, err
	}
	address := &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address:       fmt.Sprintf("%s.%s.svc.cluster.local.", of.service, of.namespace),
		PortSpecifier: &core.SocketAddress_PortValue{PortValue: of.port},
	}}}
	return &cluster.Cluster{
		Name:                 of.cluster(),
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_STRICT_DNS},
		ConnectTimeout:       durationpb.New(connectTimeout),
		LoadAssignment: &endpoint.ClusterLoadAssignment{
			ClusterName: of.cluster(),
			Endpoints: []*endpoint.LocalityLbEndpoints{{LbEndpoints: []*endpoint.LbEndpoint{{
				HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: address}},
			}}}},
		},
		TransportSocket: &core.TransportSocket{
			Name:       "envoy.transport_sockets.tls",
			ConfigType: &core.TransportSocket_TypedConfig{TypedConfig: secured},
		},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{
			"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": protocol,
		},
	}, nil
}

func main() {
	address := flag.String("address", ":1063", "listening address")
	// The name and the default are those of AI Gateway's controller.
	received := flag.Int("maxRecvMsgSize", 4<<20, "largest message in bytes")
	flag.Parse()
	listening, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	serving := grpc.NewServer(grpc.MaxRecvMsgSize(*received))
	extension.RegisterEnvoyGatewayExtensionServer(serving, server{})
	checks := health.NewServer()
	checks.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(serving, checks)
	log.Printf("serving at %s", listening.Addr())
	log.Fatal(serving.Serve(listening))
}
