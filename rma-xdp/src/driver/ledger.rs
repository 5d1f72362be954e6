//! The driver's ledger of what it has handed out and has yet to get back.

use core::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rma_core::{receive_queue::QueueWatch, region::RegionNames};

use super::{accounts::Accounts, home::PortalHome, tenant::TenantUsage};
use crate::services::ServiceBooks;

/// The accounts, shared with those who watch them.
pub(crate) type Books = Arc<Mutex<Accounts>>;

/// Lists the usage and limits of every tenant: the host itself first.
pub(crate) fn usages(books: &Books) -> Vec<TenantUsage> {
    books.lock().unwrap_or_else(PoisonError::into_inner).usages().collect()
}

/// All receive queues of a host together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveQueues {
    /// How many there are.
    pub queues: u64,
    /// Receives that are posted and whose events have not been published. 0 with queues: senders
    /// are told REMOTE_NOT_READY.
    pub receives_posted: u64,
    /// Events that applications have not read.
    pub events_unread: u64,
    /// The most that one queue has of these: an application that does not keep up.
    pub events_unread_max: u64,
}

/// Sums up the fill of the receive queues, by what their memory says.
pub(crate) fn receive_queues(books: &Books) -> ReceiveQueues {
    let mut all = ReceiveQueues::default();
    let books = books.lock().unwrap_or_else(PoisonError::into_inner);
    for QueueWatch { posted, unread } in books.queues() {
        let (posted, unread) = (posted as u64, unread as u64);
        all.queues += 1;
        all.receives_posted += posted;
        all.events_unread += unread;
        all.events_unread_max = all.events_unread_max.max(unread);
    }
    all
}

/// A driver's books, with what engines still have to give back.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// The tenants, and which portals and regions are whose. The keys of the regions are in the
    /// NICs' tables alone: a remote Rekey changes them.
    pub(super) books: Books,
    /// The ledger that portals report to when they are dropped.
    pub(crate) home: Arc<PortalHome>,
    /// The names of the NICs' regions.
    pub(super) names: RegionNames,
    /// The books of each service, besides the accounts.
    pub(crate) services: ServiceBooks,
}

impl Ledger {
    /// `slots` and `regions` are how many there are.
    pub(super) fn new(accounts: Accounts, slots: usize, regions: u32) -> Self {
        Self {
            books: Arc::new(Mutex::new(accounts)),
            home: Arc::new(PortalHome::new(slots)),
            names: RegionNames::new(regions),
            services: ServiceBooks::default(),
        }
    }

    pub(crate) fn accounts(&self) -> MutexGuard<'_, Accounts> {
        // A thread that only watches cannot leave the books half changed.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes slots that the driver takes back once their last op has completed.
    pub(super) fn retire(&self, slots: Range<u16>) {
        self.home.retired.push(slots).expect("there is room for all portals that there can be");
    }
}
