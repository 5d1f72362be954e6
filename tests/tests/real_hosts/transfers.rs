//! Transfers of any size over UDP on loopback: as calls that an application polls or waits for, as
//! futures of one buffer and of several pieces, and beside servers that do not answer. So are
//! recorded ops, messages, and channels.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod blocking;
mod channels;
mod futures;
mod ops;
mod pieces;
mod silent_peers;

use core::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use rma_tests::hosts::{CLIENT_PID, Hosts};
use rma_xdp::{
    Grant, Host, OpType, Permissions, RegisteredRegion,
    config::{NicConfigBuilder, Timing},
};

fn hosts() -> Hosts {
    Hosts::over_udp(NicConfigBuilder::default())
}

/// Hosts whose ops end after `timeout` if the peer is dead.
fn hosts_with(timeout: Duration) -> Hosts {
    let timing = Timing::software(Duration::from_micros(10), timeout);
    Hosts::over_udp(NicConfigBuilder::default().with(|it| it.timing = timing))
}

/// A region of `server`'s with these bytes, and grants to read and to write it.
fn served(server: &Host, hosts: &Hosts, bytes: &[u8]) -> (RegisteredRegion, [Grant; 2]) {
    let region = server.register(bytes.len(), Permissions::READ | Permissions::WRITE).unwrap();
    region.write(0, bytes).unwrap();
    let grants = [OpType::Read, OpType::Write]
        .map(|op_type| server.grant(&region, hosts.client_addr, CLIENT_PID, op_type).unwrap());
    (region, grants)
}

/// Polls without being woken.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}
