/* fetch_address.c - distinguishes public IP addresses from addresses in IANA's special-purpose
 * address registries */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

#include "serve/fetch.h"

static int is_public_v4(uint32_t a)
{
    static const struct {
        uint32_t net;
        int      bits;
    } special[] = {
        { 0x00000000, 8 },  /* 0/8: this network */
        { 0x0a000000, 8 },  /* 10/8: private */
        { 0x64400000, 10 }, /* 100.64/10: carrier-grade NAT */
        { 0x7f000000, 8 },  /* 127/8: loopback */
        { 0xa9fe0000, 16 }, /* 169.254/16: link-local, metadata of clouds */
        { 0xac100000, 12 }, /* 172.16/12: private */
        { 0xc0000000, 24 }, /* 192.0.0/24: protocols */
        { 0xc0000200, 24 }, /* 192.0.2/24: documentation */
        { 0xc0586300, 24 }, /* 192.88.99/24: 6to4 */
        { 0xc0a80000, 16 }, /* 192.168/16: private */
        { 0xc6120000, 15 }, /* 198.18/15: benchmarks */
        { 0xc6336400, 24 }, /* 198.51.100/24: documentation */
        { 0xcb007100, 24 }, /* 203.0.113/24: documentation */
        { 0xe0000000, 3 },  /* 224/4: multicast; 240/4: reserved, broadcast */
    };
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if ((a ^ special[i].net) >> (32 - special[i].bits) == 0)
            return 0;
    return 1;
}

/* Returns 1 if an IPv6 address is public. Of the IPv6 address space, only 2000::/3 is assigned as
 * public. Within 2000::/3, the ranges 2001::/23 (protocols, Teredo), 2001:db8::/32 and 3fff::/20
 * (documentation) and 2002::/16 (6to4, which contains an IPv4 address) are not public. */
static int is_public_v6(const uint8_t a[16])
{
    unsigned first = (unsigned)a[0] << 8 | a[1], second = (unsigned)a[2] << 8 | a[3];
    if (first >> 13 != 1 || first == 0x2002)
        return 0;
    if (first == 0x2001 && (second < 0x200 || second == 0xdb8))
        return 0;
    return !(first == 0x3fff && second < 0x1000);
}

int xd_address_is_public(const struct sockaddr *at)
{
    struct sockaddr_in  v4;
    struct sockaddr_in6 v6;
    if (at->sa_family == AF_INET) {
        memcpy(&v4, at, sizeof v4);
        return is_public_v4(ntohl(v4.sin_addr.s_addr));
    }
    if (at->sa_family != AF_INET6)
        return 0;
    memcpy(&v6, at, sizeof v6);
    return is_public_v6(v6.sin6_addr.s6_addr);
}
