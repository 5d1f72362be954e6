//! Hosts in a test's hands, for unit tests: ops are carried out one at a time, when the test says
//! so, and may fail as it says.

use core::time::Duration;
use std::{collections::VecDeque, sync::Arc};

use rma_core::{
    addr::{HostAddr, Pid},
    command::Command,
    executor::{CommandExecutor, ExecutorConfig},
    gate::{Gate, Peer},
    op::OpStatus,
    region::{Permissions, RegionId, RegisteredRegion},
    time::Instant,
};
use rma_lab::{FakeEngine, FakeHost, FakeHosts};
use rma_shm::Region;

use crate::{
    Claim, Claims, Close, Link, ReceiveError, ReceiveHandle, ReceiveInto, ReceiveState, Receiver,
    Registered, receiver, ring::Record,
};

/// All memory of all hosts.
pub(crate) struct Hosts {
    hosts: FakeHosts,
    /// It goes on with each turn.
    pub(crate) now: Instant,
    /// How much it goes on with each turn.
    pub(crate) step: Duration,
}

/// One host's link, and the ops that it has issued.
pub(crate) struct Node {
    pub(crate) peer: Peer,
    pub(crate) link: Link,
    pub(crate) engine: FakeEngine,
    /// How many ops of each type were issued.
    pub(crate) issued: [usize; 16],
}

impl Hosts {
    pub(crate) fn new() -> Self {
        let (now, step) = (Instant::from_nanos(1_000_000), Duration::from_micros(10));
        Self { hosts: FakeHosts::default(), now, step }
    }

    /// A process of the host of this number, and of its PID.
    pub(crate) fn node(&self, number: u8) -> Node {
        let address = HostAddr::from([192, 0, 2, number]);
        let peer = Peer { address, pid: Pid(u32::from(number)) };
        let (portal, engine) = FakeEngine::new(self.hosts.host(peer), 32);
        let executor = CommandExecutor::new(portal, ExecutorConfig::default()).unwrap();
        Node { peer, link: Link::new(executor), engine, issued: [0; 16] }
    }

    pub(crate) fn region(&self, id: RegionId) -> RegisteredRegion {
        self.hosts.region(id)
    }

    /// Time goes on, and a node issues what it wants to.
    pub(crate) fn turn(&mut self, node: &mut Node) {
        self.now = self.now + self.step;
        node.take(self.now);
    }

    /// Carries out the oldest op of a node that is under way.
    pub(crate) fn serve(&self, node: &mut Node) -> bool {
        let is_any = !node.engine.taken.is_empty();
        if is_any {
            node.engine.apply(0, self.now);
        }
        is_any
    }

    /// Carries out all that a node has under way.
    pub(crate) fn serve_all(&self, node: &mut Node) {
        while self.serve(node) {}
    }

    /// Carries out an op, which ends as it does.
    pub(crate) fn carry_out(&self, node: &mut Node, command: &Command) {
        let ended = node.engine.host.carry_out(command, self.now);
        node.engine.end(command, ended);
    }
}

impl Node {
    /// Its host, which its ends are opened at.
    pub(crate) const fn host(&self) -> &FakeHost {
        &self.engine.host
    }

    /// Takes what was issued.
    pub(crate) fn take(&mut self, now: Instant) -> usize {
        self.link.poll(now);
        let new = self.engine.take();
        for command in self.engine.taken.iter().rev().take(new) {
            self.issued[command.op.op_type() as usize] += 1;
        }
        new
    }

    pub(crate) fn end(&mut self, command: &Command, status: OpStatus) {
        self.engine.end(command, (status, None));
    }
}

/// A receiver over one that reads into the application's memory, which is that of this.
#[derive(Debug)]
pub(crate) struct Claiming<I> {
    into: I,
    region: RegisteredRegion,
    /// How far apart messages are there.
    stride: u64,
    /// Places that nothing is received to.
    free: Vec<u64>,
    under_way: VecDeque<(ReceiveHandle, Record)>,
    ended: Option<ReceiveError>,
}

impl<I> Claiming<I> {
    pub(crate) fn new(into: I, host: &dyn Gate, len_max: u32) -> Self {
        let (stride, key) = (u64::from(len_max), host.key().unwrap());
        let memory = Arc::new(Region::new(4 * stride as usize).unwrap());
        let region = host.register(memory, key, Permissions::NONE, None).unwrap();
        let free = (0..4).map(|place| place * stride).collect();
        Self { into, region, stride, free, under_way: VecDeque::new(), ended: None }
    }
}

impl<I: ReceiveInto> Close for Claiming<I> {
    fn registered(&mut self) -> &mut Registered {
        self.into.registered()
    }
}

impl<I: ReceiveInto> Claims for Claiming<I> {
    fn claim(&mut self) -> Result<Option<Claim>, ReceiveError> {
        let state = self.under_way.front().map(|it| self.into.test(it.0));
        match state {
            Some(ReceiveState::Received) => {
                let (_, record) = self.under_way.pop_front().unwrap();
                Ok(Some(Claim { record, from: None }))
            }
            Some(ReceiveState::Failed(error)) => Err(error),
            Some(ReceiveState::Receiving) => Ok(None),
            None => self.ended.map_or(Ok(None), Err),
        }
    }

    fn read(&self, claim: &Claim, offset: usize, bytes: &mut [u8]) -> usize {
        receiver::read(&self.region, &claim.record, offset, bytes)
    }

    fn free(&mut self, claim: Claim) {
        self.free.push(claim.record.offset);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

impl<I: ReceiveInto> Receiver for Claiming<I> {
    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        let polled = self.into.poll(link, now);
        self.ended = polled.err();
        while polled.is_ok()
            && let Some(&offset) = self.free.last()
            && let Some(incoming) = self.into.incoming()
        {
            let (position, len) = (incoming.position, incoming.len);
            assert!(u64::from(len) <= self.stride, "no longer than the longest");
            let again = self.into.incoming();
            assert_eq!(again.as_ref(), Some(&incoming), "until it is received");
            let received = self.into.receive_into(link, now, incoming, &self.region, offset);
            let Some(handle) = received.unwrap() else { break };
            self.free.pop();
            self.under_way.push_back((handle, Record { position, offset, len }));
        }
        polled
    }
}
