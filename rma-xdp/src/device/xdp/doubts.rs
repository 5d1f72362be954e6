//! Whether generic mode, which was chosen for its speed, loses frames that native mode would get.
//!
//! There are two ways to lose them on veth, where both ends are one kernel. A UDP host may hand it
//! several datagrams as one packet (UDP GSO): with a program in the driver the kernel cuts them
//! apart, and in generic mode that long packet comes, which no chunk holds. And packets that
//! somebody redirects with `act_mirred` pass by the program in generic mode
//! (`netif_receive_generic_xdp` in <https://github.com/torvalds/linux/blob/v6.12/net/core/dev.c>),
//! to the kernel's own sockets. Both can be seen, and nothing else looks like them but what is said
//! at [`Doubts::came_true`].

use std::sync::{Arc, Weak};

use super::{port::ReservedPorts, watch::XskWatch};

/// How many frames must have been lost: fragments and what came before the program was attached
/// end at the kernel's sockets as well, one at a time.
const LOST_MIN: u64 = 3;

/// Looks after an attachment in generic mode.
#[derive(Debug)]
pub(super) struct Doubts {
    /// Where frames end that pass by the program.
    ports: Weak<ReservedPorts>,
    watch: XskWatch,
    /// Whether packets may take several chunks. Then none is too long for the kernel, and it drops
    /// some without counting that chunks were wanting: where there are some, and too few
    /// (`xp_can_alloc` in
    /// <https://github.com/torvalds/linux/blob/v6.12/net/xdp/xsk_buff_pool.c>).
    multi_buffer: bool,
    /// How many frames have passed by the program so far.
    astray: u64,
}

impl Doubts {
    pub(super) fn new(ports: &Arc<ReservedPorts>, watch: XskWatch, multi_buffer: bool) -> Self {
        Self { ports: Arc::downgrade(ports), watch, multi_buffer, astray: 0 }
    }

    /// Looks, a few system calls, and says whether frames are lost for the mode. It may be wrong
    /// where somebody sends three fragmented datagrams to our port: then the mode is the slower
    /// one, until the interface goes away. False once the attachment has gone.
    pub(super) fn came_true(&mut self) -> bool {
        let Some(ports) = self.ports.upgrade() else { return false };
        self.astray += ports.drain();
        // The kernel counts a packet for which there is no chunk in both, one that is too long for
        // a chunk in the first alone (`xsk_rcv_check` and `__xsk_rcv` in
        // https://github.com/torvalds/linux/blob/v6.12/net/xdp/xsk.c).
        let statistics = self.watch.statistics().filter(|_| !self.multi_buffer);
        let too_long = statistics.map_or(0, |statistics| {
            statistics.rx_dropped.saturating_sub(statistics.rx_fill_ring_empty_descs)
        });
        self.astray.saturating_add(too_long) >= LOST_MIN
    }
}
