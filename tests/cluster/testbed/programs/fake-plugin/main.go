// A stand-in for a device plugin: it offers as many devices of one resource to the kubelet as a file says, and gives pods
// an identifier. It stands for what NVIDIA's own plugin cannot be made to show: no devices for long, devices that turn
// unhealthy, a name that two plugins register.
//
// The file holds two numbers, of healthy and of unhealthy devices, and is read again five times a second.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const period = 200 * time.Millisecond

type plugin struct {
	kubelet.UnimplementedDevicePluginServer
	resource, file string
}

func (p *plugin) numbers() (healthy, unhealthy int) {
	text, err := os.ReadFile(p.file)
	if err != nil {
		return 0, 0
	}
	fmt.Sscan(string(text), &healthy, &unhealthy)
	return healthy, unhealthy
}

func devices(healthy, unhealthy int) []*kubelet.Device {
	var made []*kubelet.Device
	for i := 0; i < healthy+unhealthy; i++ {
		health := kubelet.Healthy
		if i >= healthy {
			health = kubelet.Unhealthy
		}
		made = append(made, &kubelet.Device{ID: fmt.Sprintf("GPU-fake::%d", i), Health: health})
	}
	return made
}

func (p *plugin) GetDevicePluginOptions(context.Context, *kubelet.Empty) (*kubelet.DevicePluginOptions, error) {
	return &kubelet.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *kubelet.Empty, stream kubelet.DevicePlugin_ListAndWatchServer) error {
	sentHealthy, sentUnhealthy := -1, -1
	for {
		healthy, unhealthy := p.numbers()
		if healthy != sentHealthy || unhealthy != sentUnhealthy {
			answer := &kubelet.ListAndWatchResponse{Devices: devices(healthy, unhealthy)}
			if err := stream.Send(answer); err != nil {
				return err
			}
			sentHealthy, sentUnhealthy = healthy, unhealthy
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(period):
		}
	}
}

func (p *plugin) Allocate(_ context.Context, asked *kubelet.AllocateRequest) (*kubelet.AllocateResponse, error) {
	answer := &kubelet.AllocateResponse{}
	for range asked.ContainerRequests {
		variables := map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-fake"}
		answer.ContainerResponses = append(answer.ContainerResponses, &kubelet.ContainerAllocateResponse{Envs: variables})
	}
	return answer, nil
}

func register(resource, socket string) error {
	address := "unix://" + kubelet.KubeletSocket
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request := &kubelet.RegisterRequest{Version: kubelet.Version, Endpoint: socket, ResourceName: resource}
	_, err = kubelet.NewRegistrationClient(connection).Register(ctx, request)
	return err
}

func main() {
	resource := flag.String("resource", "nvidia.com/gpu", "name of the resource")
	socket := flag.String("socket", "fake.sock", "name of the socket in the kubelet's folder")
	file := flag.String("file", "", "file with the numbers of devices")
	flag.Parse()
	path := filepath.Join(kubelet.DevicePluginPath, *socket)
	os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	kubelet.RegisterDevicePluginServer(server, &plugin{resource: *resource, file: *file})
	go func() {
		if err := register(*resource, *socket); err != nil {
			log.Fatal(err)
		}
		log.Print("registered")
	}()
	log.Fatal(server.Serve(listener))
}
