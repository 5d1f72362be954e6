//! What the driver has handed out, and what it has yet to get back.

use core::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rma_core::region::RegionId;

use super::{accounts::Accounts, home::PortalHome, tenant::TenantUsage};

/// The accounts, shared with those who watch them.
pub(crate) type Books = Arc<Mutex<Accounts>>;

/// What every tenant has, and could have: the host itself first.
pub(crate) fn usages(books: &Books) -> Vec<TenantUsage> {
    books.lock().unwrap_or_else(PoisonError::into_inner).usages().collect()
}

/// A driver's books, with what engines still have to give back.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// The tenants, and which portals and regions are whose. The keys of the regions are in the
    /// NICs' tables alone: a remote Rekey changes them.
    pub(super) books: Books,
    /// What portals tell when they are dropped.
    pub(super) home: Arc<PortalHome>,
    /// Regions that NICs have though whoever registered them was told of an error: to be
    /// deregistered.
    pub(super) orphans: Vec<RegionId>,
}

impl Ledger {
    /// `slots` are how many there are.
    pub(super) fn new(accounts: Accounts, slots: usize) -> Self {
        Self {
            books: Arc::new(Mutex::new(accounts)),
            home: Arc::new(PortalHome::new(slots)),
            orphans: Vec::new(),
        }
    }

    pub(super) fn accounts(&self) -> MutexGuard<'_, Accounts> {
        // A thread that only watches cannot leave the books half changed.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes slots that the driver takes back once their last op has completed.
    pub(super) fn retire(&self, slots: Range<u16>) {
        self.home.retired.push(slots).expect("there is room for all portals that there can be");
    }
}
