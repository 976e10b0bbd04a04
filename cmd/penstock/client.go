package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/internal/api"
)

const defaultServer = "http://127.0.0.1:8080"

// talk are the flags of a command that talks to a server.
type talk struct {
	server, token string
	json          bool
}

func (c *cli) talkFlags(cmd *cobra.Command) *talk {
	t := &talk{}
	f := cmd.Flags()
	f.StringVar(&t.server, "server", "", "URL of the server (default $PENSTOCK_SERVER, else "+defaultServer+")")
	f.StringVar(&t.token, "token", "", "bearer token (default $PENSTOCK_TOKEN, which ps does not show)")
	f.BoolVar(&t.json, "json", false, "print JSON")
	return t
}

// client makes the client that the flags and the environment ask for.
func (c *cli) client(t *talk) (*api.Client, error) {
	server, token := t.server, t.token
	if server == "" {
		server = c.env("PENSTOCK_SERVER")
	}
	if server == "" {
		server = defaultServer
	}
	if token == "" {
		token = c.env("PENSTOCK_TOKEN")
	}
	cl, err := api.NewClient(server, token)
	if err != nil {
		return nil, usageError{err}
	}
	return cl, nil
}

// explain adds what the command line can do about a server's refusal.
func explain(err error) error {
	p, ok := errors.AsType[*api.Problem](err)
	if ok && p.Code == api.CodeUnauthorized {
		return errors.New("the server knows no such token; set PENSTOCK_TOKEN or --token to one of its auth section")
	}
	return err
}

// printJSON writes one document on one line.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// table writes rows of cells in columns.
func table(w io.Writer, rows ...[]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		if _, err := fmt.Fprintln(t, strings.Join(r, "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}

// moment writes a time, or "-".
func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// or is s, or "-" where there is nothing.
func or(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// oneLine keeps what a provider or a user wrote from moving the cursor.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
