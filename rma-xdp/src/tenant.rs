//! Shares of a [`Tenant`](crate::Tenant) in the host's tables and memory: how they are given, how
//! much of them is used, and the errors where none is left.

pub use crate::driver::tenant::{
    AllocationError, KeptFree, PoolUsage, Priority, Quota, Resource, TenantUsage, Usage,
};
