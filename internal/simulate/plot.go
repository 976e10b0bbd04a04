package simulate

import (
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Size of a plot.
const (
	plotWidth  = 24 * vg.Centimeter
	plotHeight = 20 * vg.Centimeter
)

var (
	green = color.RGBA{0x1b, 0x7f, 0x3b, 0xff}
	red   = color.RGBA{0xc0, 0x2a, 0x2a, 0xff}
	blue  = color.RGBA{0x2a, 0x5d, 0xb0, 0xff}
	grey  = color.RGBA{0x70, 0x70, 0x70, 0xff}
)

// PlotFormat returns the format that a file's name asks for, "svg" or "png".
func PlotFormat(name string) (string, error) {
	switch ext := strings.ToLower(filepath.Ext(name)); ext {
	case ".svg", ".png":
		return ext[1:], nil
	}
	return "", fmt.Errorf("plot %s: the name must end in .svg or .png", name)
}

// PlotFile writes a plot to a file, in the format that its name asks for.
func (r *Result) PlotFile(name string) error {
	format, err := PlotFormat(name)
	if err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	if err := r.Plot(f, format); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// Plot writes three panels as "svg" or "png": the rates, the calls in flight,
// and the jobs that wait.
func (r *Result) Plot(w io.Writer, format string) error {
	panels, err := r.panels()
	if err != nil {
		return err
	}
	var canvas vg.CanvasWriterTo
	switch format {
	case "svg":
		canvas = vgsvg.New(plotWidth, plotHeight)
	case "png":
		canvas = vgimg.PngCanvas{Canvas: vgimg.New(plotWidth, plotHeight)}
	default:
		return fmt.Errorf("plot: format %q is none of svg, png", format)
	}
	tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadY: vg.Centimeter / 2, PadRight: vg.Centimeter / 2, PadTop: vg.Centimeter / 4}
	for i, c := range plot.Align(panels, tiles, draw.New(canvas)) {
		panels[i][0].Draw(c[0])
	}
	if _, err := canvas.WriteTo(w); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return nil
}

// curve is one line of a panel.
type curve struct {
	name  string
	y     []float64
	color color.Color
}

func (r *Result) panels() ([][]*plot.Plot, error) {
	s := r.curves(600)
	var panels [][]*plot.Plot
	for _, p := range []struct {
		label  string
		curves []curve
	}{
		{"per second", []curve{{"allowed", s.allowed, blue}, {"calls", s.calls, green}, {"refused or failed", s.bad, red}}},
		{"calls in flight", []curve{{"allowed", s.limit, blue}, {"in flight", s.inFlight, green}}},
		{"jobs", []curve{{"waiting", s.waiting, grey}}},
	} {
		panel, err := s.panel(p.label, p.curves)
		if err != nil {
			return nil, err
		}
		panels = append(panels, []*plot.Plot{panel})
	}
	panels[0][0].Title.Text = r.Scenario.Name + ": " + r.Scenario.About
	panels[len(panels)-1][0].X.Label.Text = "seconds"
	return panels, nil
}

func (s series) panel(label string, curves []curve) (*plot.Plot, error) {
	p := plot.New()
	p.Add(plotter.NewGrid())
	most := 0.0
	for _, c := range curves {
		xys := make(plotter.XYs, len(c.y))
		for i, y := range c.y {
			xys[i] = plotter.XY{X: float64(i) * s.step.Seconds(), Y: y}
			most = max(most, y)
		}
		line, err := plotter.NewLine(xys)
		if err != nil {
			return nil, fmt.Errorf("plot %s: %w", c.name, err)
		}
		line.Color = c.color
		p.Add(line)
		p.Legend.Add(c.name, line)
	}
	p.Y.Label.Text = label
	// The legend stands above the curves.
	p.Y.Min, p.Y.Max = 0, (1+0.17*float64(len(curves)))*max(1, most)
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Millimeter
	return p, nil
}
