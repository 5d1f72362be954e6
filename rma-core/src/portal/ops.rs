//! Ops as an application names them, before they are checked.

use crate::{grant::Grant, op::ClassOfService, region::RegisteredRegion};

/// A read of 1 to [`OP_SIZE_MAX`](crate::limits::OP_SIZE_MAX) bytes.
#[derive(Clone, Copy, Debug)]
pub struct ReadOp<'a> {
    /// The permission to read.
    pub grant: &'a Grant,
    /// Where in the remote region, in bytes. The responder checks it.
    pub remote_offset: u64,
    /// Where the data lands.
    pub sink: &'a RegisteredRegion,
    /// Where in `sink`, in bytes.
    pub sink_offset: u64,
    /// How many bytes.
    pub op_size: u32,
    /// With which class of service.
    pub class: ClassOfService,
}

/// A write of 1 to [`OP_SIZE_MAX`](crate::limits::OP_SIZE_MAX) bytes.
#[derive(Clone, Copy, Debug)]
pub struct WriteOp<'a> {
    /// The permission to write.
    pub grant: &'a Grant,
    /// Where in the remote region, in bytes. The responder checks it.
    pub remote_offset: u64,
    /// Where the data comes from.
    pub source: &'a RegisteredRegion,
    /// Where in `source`, in bytes.
    pub source_offset: u64,
    /// How many bytes.
    pub op_size: u32,
    /// With which class of service.
    pub class: ClassOfService,
}
