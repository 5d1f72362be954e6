//! Whether the mode that was chosen loses frames that another would get.
//!
//! Generic mode, chosen for its speed: there are two ways to lose them on veth, where both ends are
//! one kernel. A UDP host may hand it several datagrams as one packet (UDP GSO): with a program in
//! the driver the kernel cuts them apart, and in generic mode that long packet comes, which no
//! chunk holds. And packets that somebody redirects with `act_mirred` pass by the program in
//! generic mode (`netif_receive_generic_xdp` in
//! <https://github.com/torvalds/linux/blob/v6.12/net/core/dev.c>), to the kernel's own sockets.
//! Both can be seen, and nothing else looks like them but what is said at [`Generic::look`].
//!
//! Zero-copy: see [`super::silence`].

use core::time::Duration;
use std::sync::{Arc, Weak};

use super::{
    choice::ZeroCopy,
    counters::Counters,
    port::ReservedPorts,
    silence::{Counts, Mute, Silence, Traffic, Trial},
    watch::XskWatch,
};
use crate::device::{monotonic::monotonic, net::delivered};

/// How many frames must have been lost: fragments and what came before the program was attached
/// end at the kernel's sockets as well, one at a time.
const LOST_MIN: u64 = 3;

/// Between looks at generic mode, a few system calls each. Longer is longer without those frames.
const GENERIC_PAUSE: Duration = Duration::from_millis(250);

/// Between looks at zero-copy, a question to the kernel each. Longer is longer without any frames.
const ZERO_COPY_PAUSE: Duration = Duration::from_secs(1);

/// Looks after an attachment.
#[derive(Debug)]
pub(super) struct Doubts {
    subject: Subject,
    pause: Duration,
    /// When it is looked next, by the monotonic clock: whoever wakes the thread.
    next: Duration,
}

#[derive(Debug)]
enum Subject {
    Generic(Generic),
    ZeroCopy(Link, Silence),
    /// Copy mode, in place of zero-copy that may have been mute.
    Copy(Arc<[Arc<Counters>]>, Trial),
}

/// The finding about the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// In generic mode frames get lost.
    GenericLosesFrames,
    /// Zero-copy is, or may be, mute.
    ZeroCopyMute(Mute),
    /// Copy mode hears what zero-copy did not.
    CopyHears,
    /// Nor does copy mode.
    CopyHearsNothing,
}

impl Doubts {
    fn new(subject: Subject, pause: Duration) -> Self {
        Self { subject, pause, next: monotonic() + pause }
    }

    /// About generic mode, where native mode would be another.
    pub(super) fn of_generic(
        ports: &Arc<ReservedPorts>,
        watch: XskWatch,
        multi_buffer: bool,
    ) -> Self {
        let ports = Arc::downgrade(ports);
        let subject = Subject::Generic(Generic { ports, watch, multi_buffer, astray: 0 });
        Self::new(subject, GENERIC_PAUSE)
    }

    /// About zero-copy on the interface with this index, or copy mode in its place. `None` if there
    /// is nothing to find out.
    pub(super) fn of_zero_copy(
        index: u32,
        in_use: bool,
        found: ZeroCopy,
        counters: &Arc<[Arc<Counters>]>,
    ) -> Option<Self> {
        let counters = counters.clone();
        let subject = match (in_use, found) {
            (true, ZeroCopy::Trusted) => {
                let link = Link { index, counters };
                let silence = Silence::new(link.counts()?);
                Subject::ZeroCopy(link, silence)
            }
            (false, ZeroCopy::OnTrial) => {
                let trial = Trial::new(traffic(&counters));
                Subject::Copy(counters, trial)
            }
            _ => return None,
        };
        Some(Self::new(subject, ZERO_COPY_PAUSE))
    }

    /// How long nothing is looked at.
    pub(super) fn pause(&self) -> Duration {
        self.pause
    }

    /// Looks, if it is time, and says whether something was found out.
    pub(super) fn look(&mut self) -> Option<Finding> {
        let now = monotonic();
        if now < self.next {
            return None;
        }
        self.next = now + self.pause;
        match &mut self.subject {
            Subject::Generic(generic) => generic.look().then_some(Finding::GenericLosesFrames),
            Subject::ZeroCopy(link, silence) => {
                silence.look(link.counts()?).map(Finding::ZeroCopyMute)
            }
            Subject::Copy(counters, trial) => {
                let to_blame = trial.look(traffic(counters))?;
                Some(if to_blame { Finding::CopyHears } else { Finding::CopyHearsNothing })
            }
        }
    }
}

/// That of all engines.
fn traffic(counters: &[Arc<Counters>]) -> Traffic {
    let sum = |of: fn(&Counters) -> u64| {
        counters.iter().fold(0_u64, |sum, counters| sum.wrapping_add(of(counters)))
    };
    Traffic { received: sum(Counters::received), sent: sum(|it| it.tx_packets.load()) }
}

/// The counts of an interface that works with zero-copy.
#[derive(Debug)]
struct Link {
    index: u32,
    counters: Arc<[Arc<Counters>]>,
}

impl Link {
    /// `None` if the kernel does not tell: the interface has gone, mostly.
    fn counts(&self) -> Option<Counts> {
        // Ours first: what we received was delivered before.
        let Traffic { received, sent } = traffic(&self.counters);
        let link = delivered(self.index).ok()?;
        Some(Counts {
            received,
            sent,
            delivered: link.packets,
            without_buffer: link.without_buffer,
        })
    }
}

/// An attachment in generic mode.
#[derive(Debug)]
struct Generic {
    /// The sockets at which frames end that pass by the program.
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

impl Generic {
    /// Looks, a few system calls, and says whether frames are lost for the mode. It may be wrong
    /// where somebody sends three fragmented datagrams to our port: then the mode is the slower
    /// one, until the interface goes away. False once the attachment has gone.
    fn look(&mut self) -> bool {
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
