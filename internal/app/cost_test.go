package app

import (
	"errors"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/internal/api"
)

// A cost above what the limits could ever grant is refused at the door: it
// would shut the provider for as long as it is large.
func TestCostThatCannotBeGranted(t *testing.T) {
	d := newDownstream(t)
	r := serve(t, source("embedded", d.URL, ""), Options{})
	for cost, refused := range map[string]bool{"1": false, "1000": false, "1001": true, "1000000": true} {
		_, err := r.client.Enqueue(t.Context(), []byte(`{"provider":"sms","delay":"1h","cost":`+cost+`}`))
		p, _ := errors.AsType[*api.Problem](err)
		if (err != nil) != refused || refused && (p == nil || p.Field != "cost" || !strings.Contains(p.Detail, "1000")) {
			t.Errorf("cost %s at 1000/s: %v", cost, err)
		}
	}
	if p, err := r.client.Provider(t.Context(), "sms"); err != nil || p.Defaults.MaxCost != 1000 {
		t.Errorf("%+v %v", p.Defaults, err)
	}
}
