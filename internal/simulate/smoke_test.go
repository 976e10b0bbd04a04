package simulate

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestSmoke(t *testing.T) {
	sc, err := Read(strings.NewReader(`
duration: 6m
limits: {rate: 200/s, concurrency: 50}
demand: [{rate: 100/s}]
timeline: [{at: 60s, for: 120s, outage: true}]
`))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	r, err := Run(sc)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(time.Since(start), r.Jobs, r.Succeeded, r.Dead, r.Waiting, r.Counts, r.Deferrals)
	for _, e := range r.Events {
		fmt.Println(e)
	}
}
