// Controlplane holds the programs of a Kubernetes control plane in one executable, for the integration tests:
//
//	controlplane etcd|kube-apiserver|kube-controller-manager|kube-scheduler FLAGS...
//
// One link instead of four keeps the build short. kube-scheduler is there for the comparisons in bench/.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

func main() {
	if len(os.Args) < 2 {
		refuse("")
	}
	program := os.Args[1]
	os.Args = os.Args[1:] // each program reads its own name and flags from here
	if program == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	build, known := programs[program]
	if !known {
		refuse(program)
	}
	os.Exit(cli.Run(build()))
}

func refuse(program string) {
	fmt.Fprintf(os.Stderr, "%s: no program %q; name etcd, kube-apiserver, kube-controller-manager or kube-scheduler\n",
		filepath.Base(os.Args[0]), program)
	os.Exit(2)
}
