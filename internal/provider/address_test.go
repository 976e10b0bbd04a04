package provider

import (
	"errors"
	"net/netip"
	"testing"
)

func TestCheckAddress(t *testing.T) {
	const (
		open    = publicOnly // everybody may
		local   = loopback   // localhost and allow_private may
		allowed = private    // only allow_private may
		nobody  = reach(99)
	)
	for address, from := range map[string]reach{
		"8.8.8.8": open, "1.1.1.1": open, "172.15.255.255": open, "172.32.0.1": open, "100.63.255.255": open, "100.128.0.1": open,
		"11.0.0.1": open, "169.253.0.1": open, "192.167.1.1": open, "223.255.255.255": open, "2606:4700::1111": open, "2a00::1": open,
		"::ffff:8.8.8.8": open, "64:ff9b::808:808": open, "2002:808:808::1": open,

		"127.0.0.1": local, "127.255.255.254": local, "::1": local, "::ffff:127.0.0.1": local,

		"10.0.0.1": allowed, "172.16.0.1": allowed, "172.31.255.255": allowed, "192.168.1.1": allowed, "100.64.0.1": allowed, "100.127.255.255": allowed,
		"0.0.0.0": allowed, "0.1.2.3": allowed, "224.0.1.1": allowed, "239.1.1.1": allowed, "255.255.255.255": allowed, "240.0.0.1": allowed,
		"192.0.0.1": allowed, "192.0.2.1": allowed, "198.18.0.1": allowed, "198.51.100.1": allowed, "203.0.113.1": allowed,
		"::": allowed, "fc00::1": allowed, "fd12:3456::1": allowed, "fec0::1": allowed, "ff05::1": allowed, "ff0e::1": allowed, "2001:db8::1": allowed,
		"2001::1": allowed, "100::1": allowed, "::ffff:10.0.0.1": allowed, "::ffff:192.168.0.1": allowed, "::10.0.0.1": allowed, "::7f00:1": allowed,
		"64:ff9b::7f00:1": allowed, "64:ff9b::a00:1": allowed, "64:ff9b:1::808:808": allowed, "2002:7f00:1::": allowed, "2002:a00:1::1": allowed,

		"169.254.169.254": nobody, "169.254.0.1": nobody, "fe80::1": nobody, "fe80::1%eth0": nobody, "febf::1": nobody, "::ffff:169.254.169.254": nobody,
		"64:ff9b::a9fe:a9fe": nobody, "64:ff9b:1::a9fe:a9fe": nobody, "2002:a9fe:a9fe::1": nobody, "::169.254.169.254": nobody, "224.0.0.1": nobody, "ff02::1": nobody,
		"100.100.100.200": nobody, "fd00:ec2::254": nobody, "fd20:ce::254": nobody, "192.0.0.192": nobody, "168.63.129.16": nobody,
	} {
		for _, r := range []reach{publicOnly, loopback, private} {
			err := checkAddress(netip.MustParseAddr(address), r)
			if allow := r >= from; allow != (err == nil) {
				t.Errorf("OUT-02: %s with reach %d: %v", address, r, err)
			}
			if err != nil && !errors.Is(err, ErrRefusedAddress) {
				t.Errorf("%s: %v is no ErrRefusedAddress", address, err)
			}
		}
	}
	for _, broken := range []string{"", "localhost:80", "1.2.3.4", "1.2.3.4:x"} {
		if err := private.control("tcp", broken, nil); !errors.Is(err, ErrRefusedAddress) {
			t.Errorf("dialling %q: %v", broken, err)
		}
	}
	if err := checkAddress(netip.Addr{}, private); !errors.Is(err, ErrRefusedAddress) {
		t.Errorf("no address: %v", err)
	}
}

func TestReach(t *testing.T) {
	for _, test := range []struct {
		host         string
		allowPrivate bool
		want         reach
	}{
		{"h.example", false, publicOnly}, {"h.example", true, private}, {"10.0.0.1", false, private}, {"127.0.0.1", false, private},
		{"::1", false, private}, {"localhost", false, loopback}, {"LocalHost.", false, loopback}, {"localhost", true, private},
		{"127.1", false, publicOnly}, {"0x7f.1", false, publicOnly}, {"2130706433", false, publicOnly}, {"0177.0.0.1", false, publicOnly},
		{"localhost.evil.example", false, publicOnly}, {"127.0.0.1.evil.example", false, publicOnly}, {"notlocalhost", false, publicOnly},
	} {
		if got := reachOf(test.host, test.allowPrivate); got != test.want {
			t.Errorf("reachOf(%q, %v) = %d, want %d", test.host, test.allowPrivate, got, test.want)
		}
	}
}
