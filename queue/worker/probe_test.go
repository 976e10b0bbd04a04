package worker

import "testing"

// TestShapes fails when an upgrade of asynq changes a script that the wrapped
// client answers itself. Change a SHA-1 in shape.go and it fails, too.
func TestShapes(t *testing.T) {
	if err := selfTest(t.Context()); err != nil {
		t.Fatalf("%v: read what changed in asynq's rdb.go, bring take.lua and settle.lua up to it, then shape.go", err)
	}
}

func TestRecogniseNeedsTheWholeText(t *testing.T) {
	calls, err := probe(t.Context())
	if err != nil || len(calls) < 10 {
		t.Fatalf("the probe saw %d scripts: %v", len(calls), err)
	}
	for _, c := range calls {
		k := recognise(shapes(), c.sha, c.keys, len(c.args))
		if other := recognise(shapes(), c.sha+"0", c.keys, len(c.args)); k != 0 && other != 0 {
			t.Errorf("%s is recognised by its keys alone: a changed script would be answered wrongly", k)
		}
	}
}
