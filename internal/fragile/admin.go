package fragile

import (
	"encoding/json"
	"net/http"
)

// admin answers the provider's own paths:
//
//	GET  /__report   the Report as JSON; ?format=text a table, ?series=1 with Seconds
//	GET  /__live     the Live snapshot as JSON
//	GET  /__calls    the calls remembered, one JSON object a line
//	POST /__reset    Reset
//	POST /__trouble  Inject each line of the body
//
// They are open to whoever reaches the port: it is a rehearsal, on loopback.
func (p *Provider) admin(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET /__report":
		p.writeReport(w, r)
	case "GET /__live":
		writeJSON(w, p.Live())
	case "GET /__calls":
		w.Header().Set("Content-Type", "application/x-ndjson")
		enc := json.NewEncoder(w)
		for _, c := range p.Calls() {
			if enc.Encode(c) != nil {
				return // the reader left
			}
		}
	case "POST /__reset":
		p.Reset()
		w.WriteHeader(http.StatusNoContent)
	case "POST /__trouble":
		p.injectBody(w, r)
	default:
		http.Error(w, "not one of GET /__report, GET /__live, GET /__calls, POST /__reset, POST /__trouble", http.StatusNotFound)
	}
}

func (p *Provider) writeReport(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("format") == "text" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_ = p.Report().WriteText(w) // the reader left
		return
	}
	rep := p.Report()
	if r.URL.Query().Get("series") != "" {
		rep = p.Series()
	}
	writeJSON(w, rep)
}

func (p *Provider) injectBody(w http.ResponseWriter, r *http.Request) {
	list, err := ParseTimeline(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, t := range list {
		if err := p.Inject(t); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // the reader left
}
