//go:build faults

package faults

import (
	"io"
	"net/http"
	"strings"
)

// answer is one of the API's, as any client sees it.
type answer struct {
	status int
	header http.Header
	body   string
}

func (h *house) post(path, body string) answer {
	h.t.Helper()
	return h.send(http.MethodPost, path, strings.NewReader(body))
}

func (h *house) get(path string) answer {
	h.t.Helper()
	return h.send(http.MethodGet, path, nil)
}

func (h *house) send(method, path string, body io.Reader) answer {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, body)
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+operator)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{status: 0, body: err.Error()}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}
