package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// Fault is one thing wrong with a file, or (Warning) worth knowing of it.
type Fault struct {
	File string `json:"file"`
	// Line counts from 1. Zero: the file as a whole.
	Line int `json:"line,omitzero"`
	// Field is the path of the setting, like providers.sms.rate.
	Field string `json:"field,omitzero"`
	// Text says what is wrong and what to do, and repeats no secret.
	Text string `json:"text"`
	// Warning is set where the file may be used all the same.
	Warning bool `json:"warning,omitzero"`
}

// String is the form that editors jump to: file:line: field: text.
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d", f.Line)
	}
	b.WriteString(": ")
	if f.Warning {
		b.WriteString("warning: ")
	}
	if f.Field != "" {
		b.WriteString(f.Field + ": ")
	}
	b.WriteString(f.Text)
	return b.String()
}

// Report is everything found in one reading, in the order of the lines.
type Report []Fault

// Failed reports whether the file cannot be used.
func (r Report) Failed() bool {
	return slices.ContainsFunc(r, func(f Fault) bool { return !f.Warning })
}

// Faults are those that keep the file from being used.
func (r Report) Faults() Report { return r.only(false) }

// Warnings are the others.
func (r Report) Warnings() Report { return r.only(true) }

func (r Report) only(warning bool) Report {
	var out Report
	for _, f := range r {
		if f.Warning == warning {
			out = append(out, f)
		}
	}
	return out
}

// String is one line for each.
func (r Report) String() string {
	var b strings.Builder
	for _, f := range r {
		b.WriteString(f.String() + "\n")
	}
	return b.String()
}

// Err is nil where the file can be used, else an error of every fault.
func (r Report) Err() error {
	if !r.Failed() {
		return nil
	}
	return errors.New(strings.TrimSuffix(r.Faults().String(), "\n"))
}

// unwrapPath drops the path from an error that will be printed beside it.
func unwrapPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

func readAll(f io.Reader) ([]byte, error) {
	src, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", unwrapPath(err))
	}
	if len(src) > MaxFile {
		return nil, fmt.Errorf("is larger than %d MiB", MaxFile>>20)
	}
	return src, nil
}
