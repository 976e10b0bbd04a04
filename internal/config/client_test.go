package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// parse reads a file that must be good.
func parse(t *testing.T, src string) *Config {
	t.Helper()
	c, rep := Parse("test.yaml", []byte(src), lookup)
	if c == nil {
		t.Fatalf("refused:\n%s", rep)
	}
	return c
}

const oneProvider = "providers: {sms: {base_url: \"https://sms.example\", rate: 1/s}}\n"

// ping runs one write through the settings.
func ping(t *testing.T, r Redis) error {
	t.Helper()
	c, err := r.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.Set(t.Context(), "k", "v", 0).Err()
}

// QUE-19: the user's name and the database of a URL, and of the fields, are used.
func TestQUE19UserAndDatabase(t *testing.T) {
	for name, redis := range map[string]string{
		"in the URL": `{url: "redis://appuser:s3cret@%s/2"}`,
		"beside it":  `{url: "redis://%s/2", username: appuser, password: s3cret}`,
	} {
		t.Run(name, func(t *testing.T) {
			m := miniredis.RunT(t)
			m.RequireUserAuth("appuser", "s3cret")
			c := parse(t, "redis: "+fmt.Sprintf(redis, m.Addr())+"\n"+oneProvider)
			if err := ping(t, c.Redis); err != nil {
				t.Fatal(err)
			}
			if got, err := m.DB(2).Get("k"); err != nil || got != "v" {
				t.Errorf("database 2 holds %q, %v", got, err)
			}
			wrong := c.Redis
			wrong.Username = "other"
			if err := ping(t, wrong); err == nil || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("another user: %v", err)
			}
		})
	}
}

// QUE-20: sentinels and data nodes have separate logins, and the database stays.
func TestQUE20Sentinel(t *testing.T) {
	c := parse(t, `redis:
  sentinel: {master: m1, addrs: ["s1:26379", "s2:26379"], username: su, password: sp}
  username: du
  password: dp
  db: 3
  tls: {server_name: cache.example}
`+oneProvider)
	o, err := c.Redis.Options()
	if err != nil {
		t.Fatal(err)
	}
	f := o.Failover()
	got := []any{f.MasterName, f.SentinelUsername, f.SentinelPassword, f.Username, f.Password, f.DB, len(f.SentinelAddrs), f.TLSConfig.ServerName}
	want := []any{"m1", "su", "sp", "du", "dp", 3, 2, "cache.example"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// QUE-21: the server's name is checked; an authority, a client pair and another
// name can be set; nothing skips the check.
func TestQUE21TLS(t *testing.T) {
	pki := newPKI(t)
	m := miniredis.NewMiniRedis()
	if err := m.StartTLS(&tls.Config{Certificates: []tls.Certificate{pki.server}, ClientCAs: pki.pool, ClientAuth: tls.RequireAndVerifyClientCert}); err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	set := func(extra string) Redis {
		return parse(t, fmt.Sprintf("redis: {url: \"rediss://%s/0\", tls: {cert: %s, key: %s%s}}\n", m.Addr(), pki.cert, pki.key, extra)+oneProvider).Redis
	}
	for _, tt := range []struct {
		name, extra, wantErr string
	}{
		{"authority and name", ", server_name: cache.example, ca: " + pki.ca, ""},
		{"no authority", ", server_name: cache.example", "certificate"},
		{"the address is not the certificate's name", ", ca: " + pki.ca, "certificate"},
		{"another name", ", server_name: other.example, ca: " + pki.ca, "certificate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := ping(t, set(tt.extra))
			switch {
			case tt.wantErr == "" && err != nil:
				t.Error(err)
			case tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)):
				t.Errorf("got %v, want an error about the %s", err, tt.wantErr)
			}
		})
	}
	t.Run("no client certificate", func(t *testing.T) {
		r := set(", server_name: cache.example, ca: " + pki.ca)
		r.TLS.Cert, r.TLS.Key = "", ""
		if err := ping(t, r); err == nil {
			t.Error("was let in")
		}
	})
	t.Run("a file that holds no certificate", func(t *testing.T) {
		r := set("")
		r.TLS.CA = "config.go"
		if _, err := r.Client(); err == nil || !strings.Contains(err.Error(), "redis.tls.ca") {
			t.Errorf("got %v", err)
		}
	})
}

func TestWhereHidesLogin(t *testing.T) {
	for _, src := range []string{
		`{url: "redis://app:s3cret@127.0.0.1:6379/2"}`,
		`{cluster: ["a:1", "b:2"], password: s3cret}`,
		`{sentinel: {master: m, addrs: ["a:1"], password: s3cret}}`,
		"embedded",
	} {
		r := parse(t, "redis: "+src+"\n"+oneProvider).Redis
		if w := r.Where(); w == "" || strings.Contains(w, "s3cret") {
			t.Errorf("%s: %q", src, w)
		}
		if s := fmt.Sprintf("%v %+v %#v", r, r, r); strings.Contains(s, "s3cret") {
			t.Errorf("%s is printed with its password: %s", src, s)
		}
	}
}

type pki struct {
	server        tls.Certificate
	pool          *x509.CertPool
	ca, cert, key string
}

// newPKI makes an authority, a server's certificate for cache.example and a
// client's pair.
func newPKI(t *testing.T) pki {
	t.Helper()
	dir := t.TempDir()
	caKey, caCert := makeCert(t, nil, nil, "authority")
	srvKey, srvCert := makeCert(t, caKey, caCert, "cache.example")
	cliKey, cliCert := makeCert(t, caKey, caCert, "client")
	p := pki{pool: x509.NewCertPool(), ca: filepath.Join(dir, "ca.pem"), cert: filepath.Join(dir, "c.pem"), key: filepath.Join(dir, "k.pem")}
	p.pool.AddCert(caCert)
	p.server = tls.Certificate{Certificate: [][]byte{srvCert.Raw}, PrivateKey: srvKey}
	der, err := x509.MarshalECPrivateKey(cliKey)
	if err != nil {
		t.Fatal(err)
	}
	for path, b := range map[string]*pem.Block{
		p.ca: {Type: "CERTIFICATE", Bytes: caCert.Raw}, p.cert: {Type: "CERTIFICATE", Bytes: cliCert.Raw}, p.key: {Type: "EC PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func makeCert(t *testing.T, caKey *ecdsa.PrivateKey, ca *x509.Certificate, name string) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ca == nil {
		tmpl.IsCA, tmpl.BasicConstraintsValid = true, true
		ca, caKey = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, cert
}
