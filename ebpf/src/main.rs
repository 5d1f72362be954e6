//! The XDP program that steers a host's frames to AF_XDP sockets: not in the paper, whose NIC is the
//! hardware that frames arrive at.
//!
//! It chooses between three verdicts, from the headers and from what the socket has read:
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
//!            destination ADDRESS_V4 or ADDRESS_V6                      otherwise ──────► PASS
//!            destination port ≠ 0, in PORTS                            otherwise ──────► PASS
//!                          │
//!            a socket in XSKS at this queue?                           none ───────────► PASS
//!                          │
//!            room among its CHUNKS_MAX, by what it has read?           none ───────────► DROP
//!                          │
//!                          ▼
//!           REDIRECT to that socket, the whole frame
//! ```
//!
//! Why each of the others passes:
//!
//! - *Not ours* (another EtherType, protocol, address or port): the host's other traffic must not
//!   notice that this program is here; nor that of others who share the interface with it, as a
//!   container's macvlan, a bridge, or a UDP host with another of the machine's addresses.
//! - *Fragments*: only the first one names a port, so the kernel puts them together or reports that
//!   it could not. 1RMA frames fit the path's MTU and are never fragmented.
//! - *Frames that end inside a header* and *headers that contradict themselves*: the kernel counts
//!   such frames where people look for them (`nstat`).
//! - *More tags or extension headers* than the limits in [`headers`]: nothing in front of a 1RMA
//!   frame needs them, and a bound is what the verifier asks for.
//! - *Ours, while no socket is bound at the queue*: the kernel answers "port unreachable", which
//!   tells a peer more than silence does. It also makes attach and detach harmless in any order.
//!
//! One frame is dropped: *ours, while the socket's owner does not read* (see [`room`]). It would be
//! lost as well if it passed, in the buffer of a kernel socket that nobody reads, after the kernel
//! had made a packet of it, which costs the machine more, at the wish of whoever sends. It is
//! counted here, in `QUEUES`. Any other verdict that loses a frame is taken in the engine, so the
//! program judges no length or checksum, and never aborts.
//!
//! It is an `xdp.frags` program, so that frames in several buffers (jumbo frames) reach it; the
//! headers of such a frame are in its first buffer. Kernel 5.18 is the first to [know these
//! programs][frags].
//!
//! [frags]: https://github.com/torvalds/linux/blob/v5.18/include/uapi/linux/bpf.h
#![no_std]
#![no_main]

mod headers;
mod room;

use aya_ebpf::{
    Global,
    bindings::{
        BPF_F_MMAPABLE,
        xdp_action::{XDP_DROP, XDP_PASS, XDP_REDIRECT},
    },
    btf_maps::{Array, XskMap},
    helpers::bpf_xdp_get_buff_len,
    macros::{btf_map, xdp},
    programs::XdpContext,
};
use headers::{Addresses, Cursor};
use room::Room;

/// How many ports there may be: each costs every frame of the host a comparison.
const PORTS_MAX: usize = 8;

/// The UDP destination ports of our frames, one for each service, in host byte order. The loader
/// sets them before it loads; places that are 0, which no datagram is sent to, steer nothing.
#[unsafe(no_mangle)]
static PORTS: Global<[u16; PORTS_MAX]> = Global::new([0; PORTS_MAX]);

/// The host's addresses, one of which each frame of ours goes to: see [`Addresses`]. The loader
/// sets them before it loads, as `PORTS`. They are the host's and not the interface's: a host keeps
/// its addresses for its life.
#[unsafe(no_mangle)]
static ADDRESS_V4: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
static ADDRESS_V6: Global<[u64; 2]> = Global::new([0; 2]);

/// How many chunks of a queue redirected frames may hold that its socket's owner has not read:
/// fewer than its receive ring and its UMEM have, by more than a burst of packets. The loader sets
/// it; with 0, as it is by default, all that is ours is dropped.
#[unsafe(no_mangle)]
static CHUNKS_MAX: Global<u32> = Global::new(0);

/// How many octets of a frame one chunk holds, where frames may take several. With 0, as it is by
/// default, each takes one.
#[unsafe(no_mangle)]
static CHUNK_DATA: Global<u32> = Global::new(0);

/// One AF_XDP socket for each receive queue, by the index of the queue.
///
/// Frames of queues past the end pass. A loader that meets more queues can raise the number of
/// entries; each costs a pointer. A socket works only at the index of the queue it is bound to:
/// elsewhere the kernel [drops what is redirected to it][rcv_check].
///
/// [rcv_check]: https://github.com/torvalds/linux/blob/v6.18/net/xdp/xsk.c
#[btf_map]
static XSKS: XskMap<64> = XskMap::new();

/// What the program and the owner of a queue's socket tell each other. The two halves are written
/// by different processors, and lie far enough apart that neither's cache is asked for the other.
#[repr(C)]
pub struct Queue {
    /// Written by the socket's owner, in memory that it maps: how often it has emptied the receive
    /// ring.
    emptied: u32,
    apart: [u32; 31],
    /// Written by the program, as all that follows.
    room: Room,
    /// Frames that there was no room for.
    dropped: u64,
    apart_too: [u64; 13],
}

/// Of each receive queue, by its index: as many as `XSKS` has.
#[btf_map]
static QUEUES: Array<Queue, 64, { BPF_F_MMAPABLE as usize }> = Array::new();

#[xdp(frags)]
pub fn rma_steer(context: XdpContext) -> u32 {
    // SAFETY: the kernel keeps the frame between `data` and `data_end` readable while the program
    // runs.
    let mut frame = unsafe { Cursor::new(context.data(), context.data_end()) };
    let Some(destination) = headers::udp_destination(&mut frame, &Host) else { return XDP_PASS };
    if destination == 0 || !is_ours(destination) {
        return XDP_PASS;
    }
    let index = context.rx_queue_index();
    let Some(queue) = QUEUES.get_ptr_mut(index) else { return XDP_PASS };
    // The low bits of the flags are the verdict when there is no socket at this index.
    let (Ok(verdict) | Err(verdict)) = XSKS.redirect(index, u64::from(XDP_PASS));
    if verdict == XDP_REDIRECT && !has_room(queue, chunks(&context)) { XDP_DROP } else { verdict }
}

/// The host, by the addresses that the loader has set.
struct Host;

impl Addresses for Host {
    #[inline(always)]
    fn v4(&self) -> u32 {
        ADDRESS_V4.load()
    }

    #[inline(always)]
    fn v6(&self) -> [u64; 2] {
        ADDRESS_V6.load()
    }
}

/// How many chunks the frame takes.
#[inline(always)]
fn chunks(context: &XdpContext) -> u32 {
    let data = CHUNK_DATA.load();
    if data == 0 {
        return 1;
    }
    // SAFETY: the context is the one that the kernel has called the program with.
    let len = unsafe { bpf_xdp_get_buff_len(context.ctx) } as u32;
    len.div_ceil(data)
}

/// Counts a frame among those that the socket's owner has yet to read, or among those dropped.
///
/// A native program's queue is served by one processor at a time, and these numbers are its own.
/// In generic mode several may meet here, and then some frames are not counted: that mode has no
/// zero-copy, so a full ring there stops nobody else.
#[inline(always)]
fn has_room(queue: *mut Queue, chunks: u32) -> bool {
    // SAFETY: an element of an array map is there for as long as the program runs. It is read and
    // written as a whole, whoever else does so.
    let mut room = unsafe { (&raw const (*queue).room).read_volatile() };
    // SAFETY: as above; the word is another's, who writes it at any time, whole.
    let emptied = || unsafe { (&raw const (*queue).emptied).read_volatile() };
    let has_room = room.take(chunks, CHUNKS_MAX.load(), emptied);
    // SAFETY: as above.
    unsafe { (&raw mut (*queue).room).write_volatile(room) };
    if !has_room {
        // SAFETY: as above.
        let dropped = unsafe { (&raw const (*queue).dropped).read_volatile() };
        // SAFETY: as above.
        unsafe { (&raw mut (*queue).dropped).write_volatile(dropped + 1) };
    }
    has_room
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
