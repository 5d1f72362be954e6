//! Calls without a deadline, in the order in which they had their last success. All may go equally
//! long without another, so the first of them is the next whose time is over.

use crate::{
    index_list::{IndexList, Links},
    time::{Instant, nanos},
};

use super::config::ExecutorConfig;

#[derive(Debug)]
pub(super) struct Stalls {
    /// [`ExecutorConfig::stall`] in nanoseconds.
    stall: u64,
    list: IndexList,
    links: Links,
}

impl Stalls {
    pub(super) fn new(config: &ExecutorConfig) -> Self {
        let (stall, links) = (nanos(config.stall), Links::new(config.calls.into()));
        Self { stall, list: IndexList::new(), links }
    }

    /// How long a call may go without a success, in nanoseconds.
    pub(super) const fn stall(&self) -> u64 {
        self.stall
    }

    /// A call begins.
    #[inline]
    pub(super) fn push(&mut self, call: u16) {
        self.list.push_back(&mut self.links, call);
    }

    /// A call in the list has a success, later than that of any other.
    pub(super) fn renew(&mut self, call: u16) {
        self.remove(call);
        self.push(call);
    }

    /// A call in the list ends.
    #[inline]
    pub(super) fn remove(&mut self, call: u16) {
        self.list.remove(&mut self.links, call);
    }

    /// The call whose time is over first, and when that is. `since`: when a call had its last
    /// success.
    pub(super) fn first(&self, since: impl Fn(u16) -> Instant) -> Option<(u16, Instant)> {
        let call = self.list.front()?;
        Some((call, since(call).after_nanos(self.stall)))
    }
}
