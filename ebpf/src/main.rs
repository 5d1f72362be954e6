//! The XDP program that steers a host's frames to AF_XDP sockets: not in the paper, whose NIC is the
//! hardware that frames arrive at.
//!
//! It chooses between two verdicts, from the headers alone:
//!
//! ```text
//!                       frame
//!                         │
//!            Ethernet, up to two VLAN tags
//!             IPv4 │                 │ IPv6                            anything else ──► PASS
//!                  ▼                 ▼
//!     version 4, IHL ≥ 5,    version 6, up to four of
//!     not a fragment         hop-by-hop, routing, destination
//!                  │                 │                                 otherwise ──────► PASS
//!                  └────── UDP ──────┘                                 otherwise ──────► PASS
//!                          │
//!            destination port ≠ 0, in PORTS                           otherwise ──────► PASS
//!                          │
//!            a socket in XSKS at this queue?                           none ───────────► PASS
//!                          │
//!                          ▼
//!           REDIRECT to that socket, the whole frame
//! ```
//!
//! Why each of the others passes:
//!
//! - *Not ours* (another EtherType, protocol or port): the host's other traffic must not notice
//!   that this program is here.
//! - *Fragments*: only the first one names a port, so the kernel puts them together or reports that
//!   it could not. 1RMA frames fit the path's MTU and are never fragmented.
//! - *Frames that end inside a header* and *headers that contradict themselves*: the kernel counts
//!   such frames where people look for them (`nstat`).
//! - *More tags or extension headers* than the limits in [`headers`]: nothing in front of a 1RMA
//!   frame needs them, and a bound is what the verifier asks for.
//! - *Ours, while no socket is bound at the queue*: the kernel answers "port unreachable", which
//!   tells a peer more than silence does. It also makes attach and detach harmless in any order.
//!
//! The program never drops or aborts: a verdict that loses a frame is taken where it can be
//! counted, in the engine. For the same reason it judges no length, checksum or address.
//!
//! It is an `xdp.frags` program, so that frames in several buffers (jumbo frames) reach it; the
//! headers of such a frame are in its first buffer. Kernel 5.18 is the first to [know these
//! programs][frags].
//!
//! [frags]: https://github.com/torvalds/linux/blob/v5.18/include/uapi/linux/bpf.h
#![no_std]
#![no_main]

mod headers;

use aya_ebpf::{
    Global,
    bindings::xdp_action::XDP_PASS,
    btf_maps::XskMap,
    macros::{btf_map, xdp},
    programs::XdpContext,
};
use headers::Cursor;

/// How many ports there may be: each costs every frame of the host a comparison.
const PORTS_MAX: usize = 8;

/// The UDP destination ports of our frames, one for each service, in host byte order. The loader
/// sets them before it loads; places that are 0, which no datagram is sent to, steer nothing.
#[unsafe(no_mangle)]
static PORTS: Global<[u16; PORTS_MAX]> = Global::new([0; PORTS_MAX]);

/// One AF_XDP socket for each receive queue, by the index of the queue.
///
/// Frames of queues past the end pass. A loader that meets more queues can raise the number of
/// entries; each costs a pointer. A socket works only at the index of the queue it is bound to:
/// elsewhere the kernel [drops what is redirected to it][rcv_check].
///
/// [rcv_check]: https://github.com/torvalds/linux/blob/v6.18/net/xdp/xsk.c
#[btf_map]
static XSKS: XskMap<64> = XskMap::new();

#[xdp(frags)]
pub fn rma_steer(context: XdpContext) -> u32 {
    // SAFETY: the kernel keeps the frame between `data` and `data_end` readable while the program
    // runs.
    let mut frame = unsafe { Cursor::new(context.data(), context.data_end()) };
    let Some(destination) = headers::udp_destination(&mut frame) else { return XDP_PASS };
    if destination == 0 || !is_ours(destination) {
        return XDP_PASS;
    }
    // The low bits of the flags are the verdict when there is no socket at this index.
    let (Ok(verdict) | Err(verdict)) = XSKS.redirect(context.rx_queue_index(), u64::from(XDP_PASS));
    verdict
}

/// Whether one of the services listens on `port`. Without a branch for each port, so that the
/// verifier has one path to follow.
#[inline(always)]
fn is_ours(port: u16) -> bool {
    PORTS.load().iter().fold(false, |found, &ours| found | (ours == port))
}

/// The helpers used here are open to programs under any licence.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 18] = *b"MIT OR Apache-2.0\0";

/// Never reached. If a change made it reachable the verifier would see a loop without end and
/// refuse the program, where a promise to the compiler (`unreachable_unchecked`) would turn into a
/// wrong verdict.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
