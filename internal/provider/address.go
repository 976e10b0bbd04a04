package provider

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
)

// reach says which addresses a provider's calls may go to.
type reach uint8

const (
	publicOnly reach = iota // the rule
	loopback                // base_url names localhost: loopback, too
	private                 // allow_private, or base_url names an address: all but metadata services
)

// never are the addresses that no configuration opens: link-local ones, and
// those under which clouds serve credentials to whoever asks from a machine.
var never = prefixes(
	"169.254.0.0/16",     // link-local: AWS, Google, Azure, and most others
	"fe80::/10",          // link-local
	"224.0.0.0/24",       // link-local multicast
	"ff02::/16",          // link-local multicast
	"fd00:ec2::254/128",  // AWS over IPv6
	"fd20:ce::254/128",   // Google over IPv6
	"100.100.100.200/32", // Alibaba
	"192.0.0.192/32",     // Oracle
	"168.63.129.16/32",   // Azure's wire server
)

// notPublic are the addresses that are not reached over the Internet (IANA's
// special-purpose registries), or that hide another address in themselves.
var notPublic = prefixes(
	"0.0.0.0/8",       // this network; 0.0.0.0 reaches the machine itself
	"10.0.0.0/8",      // private
	"100.64.0.0/10",   // carrier-grade NAT
	"127.0.0.0/8",     // loopback
	"172.16.0.0/12",   // private
	"192.0.0.0/24",    // protocol assignments
	"192.0.2.0/24",    // documentation
	"192.88.99.0/24",  // 6to4 relays
	"192.168.0.0/16",  // private
	"198.18.0.0/15",   // benchmarks
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"224.0.0.0/4",     // multicast
	"240.0.0.0/4",     // reserved, broadcast
	"::/96",           // unspecified, loopback, IPv4-compatible
	"64:ff9b:1::/48",  // local-use NAT64
	"100::/64",        // discard
	"2001::/23",       // protocol assignments, Teredo
	"2001:db8::/32",   // documentation
	"3fff::/20",       // documentation
	"5f00::/16",       // segment routing
	"fc00::/7",        // unique local
	"fec0::/10",       // site-local
	"ff00::/8",        // multicast
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func within(addr netip.Addr, list []netip.Prefix) bool {
	for _, p := range list {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	compatible = netip.MustParsePrefix("::/96")
)

// embedded returns the IPv4 address that a translated address leads to.
func embedded(addr netip.Addr) (netip.Addr, bool) {
	b := addr.As16()
	switch {
	case nat64.Contains(addr), nat64Local.Contains(addr), compatible.Contains(addr):
		return netip.AddrFrom4([4]byte(b[12:16])), true
	case sixToFour.Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return netip.Addr{}, false
}

// checkAddress refuses addr if calls with this reach may not go there.
func checkAddress(addr netip.Addr, r reach) error {
	addr = addr.WithZone("").Unmap()
	if inner, ok := embedded(addr); addr.Is6() && ok {
		if within(inner, never) {
			return fmt.Errorf("%w: %s leads to %s, which is link-local or a metadata service; these are never called", ErrRefusedAddress, addr, inner)
		}
		if within(inner, notPublic) && r != private && !addr.IsLoopback() {
			return fmt.Errorf("%w: %s leads to %s, which is not public; allow_private lets it", ErrRefusedAddress, addr, inner)
		}
	}
	switch {
	case !addr.IsValid():
		return fmt.Errorf("%w: not an address", ErrRefusedAddress)
	case within(addr, never):
		return fmt.Errorf("%w: %s is link-local or a metadata service; these are never called", ErrRefusedAddress, addr)
	case r == private, r == loopback && addr.IsLoopback(), !within(addr, notPublic):
		return nil
	}
	return fmt.Errorf("%w: %s is not public; allow_private lets it", ErrRefusedAddress, addr)
}

// control is the net.Dialer's last word before it connects: the address is the
// one just resolved, so a name that changed its mind is caught here.
func (r reach) control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: not an address", ErrRefusedAddress)
	}
	return checkAddress(at.Addr(), r)
}

// reachOf is what a base URL's host opens by being named there.
func reachOf(host string, allowPrivate bool) reach {
	if _, err := netip.ParseAddr(host); allowPrivate || err == nil {
		return private
	}
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return loopback
	}
	return publicOnly
}
