//! The makers of portals: the [`PortalParts`] that they put together, and the [`Home`] to which
//! portals report. Portals of other services than 1RMA report to the same, by their tags.
//!
//! A host makes portals over its engine; a client of a host in another process can make them, too.
//! A portal does not know which of them made it. It has a handle to its maker, and tells it two
//! things, each once: that an executor was made over it, and that its slots are given back.
//!
//! So a host's list of its executors stays the host's own. An application makes an executor of a
//! portal and has nothing else of the host's in its hands, so the portal has to say whom to tell;
//! it says no more than that, and carries no list.

use core::{
    fmt,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use std::sync::Arc;

use rma_core::portal::CommandPortal;

use crate::{gauges::ExecutorWatch, life::Life, sleep::Sleep};

/// The maker of portals, as it is told about them by the threads that use them. Homes are told
/// apart by their address in memory.
pub trait Home: fmt::Debug + Send + Sync {
    /// An executor was made over one of the portals. Watching it keeps nothing of it alive.
    fn executor_made(&self, executor: ExecutorWatch);

    /// The portal of these slots was dropped. Ops of it may be in flight still; nobody will poll
    /// their completions.
    fn slots_returned(&self, slots: Range<u16>);

    /// The portal of this tag was dropped. It may have frames under way still. Nothing happens at a
    /// maker of none.
    fn tag_returned(&self, portal: PortalTag) {
        let _ = portal;
    }
}

/// Tells a portal of a service other than 1RMA from all others of this process, also from those
/// that were before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortalTag(u64);

impl PortalTag {
    /// The next one of this process, of whatever service.
    #[must_use]
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}

/// The parts that a [`Portal`](crate::Portal) is made of.
#[derive(Debug)]
pub struct PortalParts {
    /// The application's end of the rings. The engine has the other.
    pub rings: CommandPortal,
    /// The maker of the portal.
    pub home: Arc<dyn Home>,
    /// Whether the engine can still complete ops.
    pub life: Life,
    /// The sleep of the thread that waits for completions, if the engine's end of the rings has the
    /// [`Sleep::bell`] of it. `None` if the engine is inline: then nobody would wake a sleeper.
    pub sleep: Option<Sleep>,
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rma_core::{
        addr::{HostAddr, Pid},
        executor::ExecutorConfig,
        portal::{PortalConfig, portal},
        region::NicTag,
    };

    use super::*;
    use crate::{ExecutorGauges, Portal, Transfers, gauges::Executors};

    /// A maker that notes what it is told.
    #[derive(Debug, Default)]
    struct Maker {
        executors: Executors,
        returned: Mutex<Vec<Range<u16>>>,
    }

    impl Home for Maker {
        fn executor_made(&self, executor: ExecutorWatch) {
            self.executors.add(executor);
        }

        fn slots_returned(&self, slots: Range<u16>) {
            self.returned.lock().unwrap().push(slots);
        }
    }

    impl Maker {
        fn portal(self: &Arc<Self>, slots: Range<u16>) -> Portal {
            let address: HostAddr = "192.0.2.1".parse().unwrap();
            let (addresses, pid, nic) = (address.into(), Pid(1), NicTag(1));
            let (rings, _) =
                portal(PortalConfig { slots, pid, addresses, bell: None, flag: None, nic });
            let home = self.clone();
            Portal::new(PortalParts { rings, home, life: Life::inline(), sleep: None })
        }

        fn gauges(&self) -> ExecutorGauges {
            self.executors.gauges()
        }

        /// The first slot and the end of what was returned.
        fn returned(&self) -> Vec<(u16, u16)> {
            self.returned.lock().unwrap().iter().map(|slots| (slots.start, slots.end)).collect()
        }
    }

    fn config() -> ExecutorConfig {
        ExecutorConfig::default()
    }

    #[test]
    fn the_maker_of_a_portal_is_told_of_its_executor_and_then_gets_its_slots_back() {
        let maker = Arc::new(Maker::default());
        let executor = Transfers::new(maker.portal(4..12), config()).unwrap();
        assert_eq!((maker.gauges().executors, maker.gauges().command_slots), (1, 8));
        assert_eq!(maker.returned(), []);
        drop(executor);
        assert_eq!(maker.gauges().executors, 0);
        assert_eq!(maker.returned(), [(4, 12)]);
    }

    #[test]
    fn a_portal_whose_executor_is_refused_goes_back_to_its_maker_unmentioned() {
        let maker = Arc::new(Maker::default());
        let refused = Transfers::new(maker.portal(0..1), config().with(|it| it.op_size_max = 0));
        assert!(refused.is_err());
        assert_eq!((maker.gauges().executors, maker.returned()), (0, vec![(0, 1)]));
    }

    #[test]
    fn slots_stay_taken_as_long_as_the_lease_of_a_portal_that_was_taken_apart() {
        let maker = Arc::new(Maker::default());
        let (rings, lease) = maker.portal(0..2).into_parts();
        drop(rings);
        assert_eq!(maker.returned(), []);
        drop(lease);
        assert_eq!(maker.returned(), [(0, 2)]);
    }

    #[test]
    fn two_makers_that_look_alike_are_told_apart() {
        let (maker, other) = (Arc::new(Maker::default()), Arc::new(Maker::default()));
        let portal = maker.portal(0..1);
        assert!(portal.is_of(&*maker) && !portal.is_of(&*other));
    }
}
