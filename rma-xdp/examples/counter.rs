//! A counter that several hosts and its owner count with: FETCH_ADD gives each of them numbers that
//! nobody else gets.

use std::collections::BTreeSet;

use rma_xdp::{Host, HostConfig, OpStatus, OpType, Permissions, Pid};

const CLIENTS: u32 = 3;
const TICKETS: usize = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let owner = Host::open(HostConfig::udp([127, 0, 0, 37]))?;
    let counter = owner.register(8, Permissions::ATOMIC)?;

    let clients = (1..=CLIENTS).map(|number| {
        let address = [127, 0, 0, 37 + number as u8];
        let pid = Pid(number);
        let host = Host::open(HostConfig::udp(address).with(|it| it.pid = pid))?;
        // It may add, and neither read nor write.
        let grant = owner.grant(&counter, address.into(), pid, OpType::FetchAdd)?;
        let mut portal = host.portal(1)?;
        Ok(std::thread::spawn(move || {
            let _open = host;
            let ticket = |_| {
                portal.fetch_add(&grant, 0, 1).expect("a slot is free");
                let completion = portal.wait().expect("it is under way");
                // After TIMEOUT `Portal::settle` asks for the number: see the example `lock`.
                assert_eq!(completion.status, OpStatus::Ok);
                completion.result().expect("what was there before")
            };
            (0..TICKETS).map(ticket).collect::<Vec<u64>>()
        }))
    });
    let clients: Result<Vec<_>, rma_xdp::HostError> = clients.collect();

    // The owner counts with its own processor's atomics: for all of them it is one counter.
    let mut tickets: BTreeSet<u64> =
        (0..TICKETS).map(|_| counter.fetch_add(0, 1)).collect::<Result<_, _>>()?;
    for client in clients? {
        tickets.extend(client.join().expect("all its ops were OK"));
    }
    let count = counter.load(0)?;
    println!("{count} tickets, {} different ones", tickets.len());
    assert_eq!((count, tickets.len()), (400, 400));
    Ok(())
}
