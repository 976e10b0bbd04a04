package api

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/queue"
)

// Receipt is the answer to an accepted job.
type Receipt struct {
	Provider string      `json:"provider"`
	ID       string      `json:"id"`
	State    queue.State `json:"state"`
	// Known says that the job had been accepted before: nothing was added.
	Known bool `json:"known"`
}

// JobInfo is what is known of one job. Fields that are not known are left out.
type JobInfo struct {
	Provider string            `json:"provider"`
	ID       string            `json:"id"`
	State    queue.State       `json:"state"`
	Type     string            `json:"type,omitempty"`
	Method   string            `json:"method,omitempty"`
	Path     string            `json:"path,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	// BodySize in bytes.
	BodySize int            `json:"body_size"`
	Priority queue.Priority `json:"priority,omitempty"`
	Cost     int            `json:"cost,omitempty"`
	// Attempts made so far, and how many are allowed; zero: the provider's default.
	Attempts  int `json:"attempts"`
	Allowed   int `json:"attempts_allowed,omitempty"`
	Deferrals int `json:"deferrals"`
	// Throttles are deferrals because the provider said so; Crashes are workers
	// that died holding the job.
	Throttles int       `json:"throttles"`
	Crashes   int       `json:"crashes"`
	Accepted  time.Time `json:"accepted,omitzero"`
	Due       time.Time `json:"due,omitzero"`
	Expires   time.Time `json:"expires,omitzero"`
	Final     time.Time `json:"final,omitzero"`
	KeptUntil time.Time `json:"kept_until,omitzero"`
	LastError string    `json:"last_error,omitempty"`
	// Status of the last HTTP answer.
	Status      int    `json:"status,omitempty"`
	Reason      string `json:"reason,omitempty"`
	CancelAsked bool   `json:"cancel_asked,omitzero"`
}

// JobPage is a part of a list of jobs.
type JobPage struct {
	Jobs []JobInfo `json:"jobs"`
	// Next is the cursor of the page after this one; empty: there is none.
	Next string `json:"next,omitempty"`
}

// Cancelled is the answer to a cancellation.
type Cancelled struct {
	State queue.State `json:"state"`
	// Asked says that a worker has the job and was told to stop it.
	Asked bool `json:"asked,omitzero"`
}

func jobInfo(i queue.Info) JobInfo {
	utc := func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return t.UTC()
	}
	return JobInfo{
		Provider: i.Provider, ID: i.ID, State: i.State, Type: i.Type, Method: i.Method, Path: i.Path, Headers: i.Headers,
		BodySize: i.BodySize, Priority: i.Priority, Cost: i.Cost, Attempts: i.Attempts, Allowed: i.Allowed,
		Deferrals: i.Deferrals, Throttles: i.Throttles, Crashes: i.Crashes,
		Accepted: utc(i.Accepted), Due: utc(i.Due), Expires: utc(i.Expires), Final: utc(i.Final), KeptUntil: utc(i.KeptUntil),
		LastError: i.LastError, Status: i.Status, Reason: i.Reason, CancelAsked: i.CancelAsked,
	}
}

func receipt(r queue.Receipt) Receipt {
	return Receipt{Provider: r.Provider, ID: r.ID, State: r.State, Known: r.Known}
}

// status is 202 for a new job, 200 for one that is known.
func (r Receipt) status() int {
	if r.Known {
		return http.StatusOK
	}
	return http.StatusAccepted
}

// maxRequest is how long the JSON of one job may be.
func (s *Server) maxRequest() int64 { return 6*s.cfg.MaxBody + jobOverhead }

func (s *Server) enqueue(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r, s.maxRequest())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	j, err := DecodeJob(body)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	got, err := s.cfg.Jobs.Enqueue(r.Context(), j)
	if err != nil {
		s.fail(w, r, again(err, j, got))
		return
	}
	rec := receipt(got)
	w.Header().Set("Location", jobPath(rec.Provider, rec.ID))
	reply(w, rec.status(), rec)
}

// again names the id that a job was given, where it may have been stored: sent
// again without one it would be another job.
func again(err error, j queue.Job, got queue.Receipt) error {
	p := problemOf(err)
	if p.Code != CodeStoreAway || j.ID != "" || got.ID == "" {
		return err
	}
	p.Fix = fmt.Sprintf("send it again with the id %s: if it was stored, it is not stored twice", got.ID)
	return p
}

// jobPath is where a job is found. PathEscape leaves dots alone, which paths
// may not consist of.
func jobPath(provider, id string) string {
	return "/v1/jobs/" + url.PathEscape(provider) + "/" + url.PathEscape(id)
}

func (s *Server) getJob(w http.ResponseWriter, r *http.Request) {
	i, err := s.cfg.Jobs.Get(r.Context(), r.PathValue("provider"), r.PathValue("id"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	reply(w, http.StatusOK, jobInfo(i))
}

func (s *Server) cancelJob(w http.ResponseWriter, r *http.Request) {
	provider, id := r.PathValue("provider"), r.PathValue("id")
	c, err := s.cfg.Jobs.Cancel(r.Context(), provider, id)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	status := http.StatusOK
	if c.Asked {
		status = http.StatusAccepted
	}
	reply(w, status, Cancelled{State: c.State, Asked: c.Asked})
}

func (s *Server) replayJob(w http.ResponseWriter, r *http.Request) {
	got, err := s.cfg.Jobs.Replay(r.Context(), r.PathValue("provider"), r.PathValue("id"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	reply(w, http.StatusAccepted, receipt(got))
}

// listJobs takes provider (required), state, limit and cursor.
func (s *Server) listJobs(w http.ResponseWriter, r *http.Request) {
	q, err := query(r, "provider", "state", "key", "cursor", "limit")
	if err != nil {
		s.fail(w, r, err)
		return
	}
	f := queue.Filter{State: queue.State(q["state"]), Cursor: q["cursor"]}
	switch {
	case q["key"] != "":
		s.fail(w, r, problem(CodeNotBuilt, "leave key out", "lists by key are not built yet"))
		return
	case q["provider"] == "":
		s.fail(w, r, wrong("provider", "say ?provider=NAME; /v1/providers lists them", "is missing"))
		return
	case q["limit"] != "":
		n, err := strconv.Atoi(q["limit"])
		if err != nil || n < 1 {
			s.fail(w, r, wrong("limit", "from 1 to "+strconv.Itoa(queue.MaxPage), "must be a whole number"))
			return
		}
		f.Limit = n
	}
	page, err := s.cfg.Jobs.List(r.Context(), q["provider"], f)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := JobPage{Jobs: make([]JobInfo, 0, len(page.Jobs)), Next: page.Next}
	for _, i := range page.Jobs {
		out.Jobs = append(out.Jobs, jobInfo(i))
	}
	reply(w, http.StatusOK, out)
}

// query reads the known parameters and refuses others: a misspelt filter that
// is ignored would show the wrong list.
func query(r *http.Request, known ...string) (map[string]string, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, problem(CodeInvalid, "percent-encode it", "the query cannot be read")
	}
	out := map[string]string{}
	for name, v := range values {
		ok := false
		for _, k := range known {
			ok = ok || k == name
		}
		switch {
		case !ok:
			return nil, wrong(name, nearest(name, known), "is not a parameter here")
		case len(v) > 1:
			return nil, wrong(name, "give it once", "is given twice")
		}
		out[name] = strings.TrimSpace(v[0])
	}
	return out, nil
}
