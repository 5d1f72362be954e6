//! A large transfer, and what is left to do when a host fails in the middle: blocking calls, and a
//! call whose outcome tells what is missing.

use rma_xdp::{
    Call, CallStatus, Grant, Host, HostConfig, OpType, Permissions, Piece, RegisteredRegion,
    transfer::RetryPolicy,
};

const LEN: u64 = 8 << 20;

/// A replica of the data, and a grant to read it.
fn replica(address: [u8; 4], client: &Host) -> Result<(Host, Grant), Box<dyn std::error::Error>> {
    let host = Host::open(HostConfig::udp(address))?;
    let region: RegisteredRegion = host.register(LEN as usize, Permissions::READ)?;
    let data: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    region.write(0, &data)?;
    let grant = host.grant(&region, [127, 0, 0, 11].into(), client.pid(), OpType::Read)?;
    Ok((host, grant))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Host::open(HostConfig::udp([127, 0, 0, 11]))?;
    let (first, from_first) = replica([127, 0, 0, 12], &client)?;
    let (_second, from_second) = replica([127, 0, 0, 13], &client)?;
    let local = client.register(LEN as usize, Permissions::NONE)?;

    // Cut into ops, paced by congestion control, retried if need be; returns when all of it is
    // there.
    let mut executor = client.transfers(64)?;
    let began = executor.now();
    executor.read(&from_first, 0, &local, 0, LEN)?;
    println!("{LEN} bytes in {:?}", executor.now().since(began));

    // The first replica dies in the middle of a call that is not to be retried there.
    let whole =
        [Piece { grant: &from_first, remote_offset: 0, local: &local, local_offset: 0, len: LEN }];
    let call = executor.submit(&Call::of(&whole).with(|it| it.retry = RetryPolicy::NONE))?;
    executor.poll();
    drop(first);
    let outcome = executor.wait(call)?;
    println!("{}: {} bytes are there", outcome.status, outcome.bytes_done);

    // The second one is asked for what is missing, and for nothing else.
    let rest = outcome.remaining(&whole, |_| &from_second);
    let rest = executor.run(&Call::of(&rest))?;
    assert_eq!(rest.status, CallStatus::Ok);
    assert_eq!(outcome.bytes_done + rest.bytes_done, LEN);

    let mut last = [0; 1];
    local.read(LEN - 1, &mut last)?;
    assert_eq!(u64::from(last[0]), (LEN - 1) % 251);
    Ok(())
}
