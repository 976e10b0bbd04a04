package api

import (
	"crypto/hmac"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/binary"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	sessionCookie = "penstock_session"
	sessionLife   = 12 * time.Hour
	maxForm       = 16 << 10
)

//go:embed login.html
var loginHTML string

var loginPage = template.Must(template.New("login").Parse(loginHTML))

// sealSession makes a cookie's value: the time of its end and a MAC under a key
// made of the operator's token. Nothing is stored, every replica knows it, and
// it ends when the token is changed.
func (k *knownToken) sealSession(end time.Time) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(end.Unix()))
	m := hmac.New(sha256.New, k.sessions[:])
	m.Write(b)
	return base64.RawURLEncoding.EncodeToString(m.Sum(b))
}

// openSession checks a cookie's value.
func (k *knownToken) openSession(b []byte, now time.Time) bool {
	if len(b) != 8+sha256.Size {
		return false
	}
	m := hmac.New(sha256.New, k.sessions[:])
	m.Write(b[:8])
	return hmac.Equal(m.Sum(nil), b[8:]) && now.Unix() < int64(binary.BigEndian.Uint64(b[:8]))
}

// session finds the operator whose session a request carries.
func (d *door) session(r *http.Request) (caller, bool) {
	c, err := r.Cookie(sessionCookie)
	if err != nil {
		return caller{}, false
	}
	b, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return caller{}, false
	}
	for i := range d.known {
		k := &d.known[i]
		if k.role == operator && k.openSession(b, time.Now()) {
			return k.caller, true
		}
	}
	return caller{}, false
}

// browse wraps a page: a browser without a session is sent to the login form,
// everyone else gets the problem.
func (s *Server) browse(h http.Handler) http.Handler {
	guarded := s.require(operator, h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, p := s.door.identify(r); p != nil && p.Code == CodeUnauthorized && wantsPage(r) {
			w.Header().Set("Cache-Control", "no-store")
			http.Redirect(w, r, "/login?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

func wantsPage(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") && r.Header.Get("Authorization") == ""
}

// login shows the form, and takes it.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	pageHeaders(w.Header(), "default-src 'none'; style-src 'sha256-"+sha256Of(loginStyle())+"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	next := localPath(r.FormValue("next"))
	if s.door.open() {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	}
	if r.Method != http.MethodPost {
		s.loginForm(w, http.StatusOK, next, "")
		return
	}
	if err := s.door.cross.Check(r); err != nil {
		problem(CodeForbidden, "use the server's own form", "another site's page sent this form").write(w)
		return
	}
	k := s.door.token(strings.TrimSpace(r.PostFormValue("token")))
	switch {
	case !s.logins.Allow():
		s.loginForm(w, http.StatusTooManyRequests, next, "Too many tries; wait a few seconds.")
	case k == nil || k.role != operator:
		s.log.Warn("a login was refused", "remote", r.RemoteAddr)
		s.loginForm(w, http.StatusUnauthorized, next, "This is not an operator's token.")
	default:
		end := time.Now().Add(sessionLife)
		http.SetCookie(w, &http.Cookie{Name: sessionCookie, Value: k.sealSession(end), Path: "/", MaxAge: int(sessionLife.Seconds()),
			HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"})
		http.Redirect(w, r, next, http.StatusSeeOther)
	}
}

func (s *Server) loginForm(w http.ResponseWriter, status int, next, fault string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if err := loginPage.Execute(w, struct{ Next, Fault string }{next, fault}); err != nil {
		s.log.Debug("the login form was not sent", "error", err)
	}
}

// logout ends the session in this browser.
func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	if err := s.door.cross.Check(r); err != nil {
		problem(CodeForbidden, "use the server's own pages", "another site's page sent this").write(w)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: sessionCookie, Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// localPath keeps a redirect on this server.
func localPath(p string) string {
	u, err := url.Parse(p)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") || strings.ContainsAny(p, "\\\r\n\t") {
		return "/queues/"
	}
	return p
}

// loginStyle is the form's inline style, which the content policy names by hash.
func loginStyle() string {
	_, rest, _ := strings.Cut(loginHTML, "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	return style
}

// pageHeaders are what every page is sent with.
func pageHeaders(h http.Header, policy string) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

func sha256Of(s string) string {
	h := sha256.Sum256([]byte(s))
	return base64.StdEncoding.EncodeToString(h[:])
}
