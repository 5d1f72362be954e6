//! One host reads another's memory: register, grant, read, check.

use rma_xdp::{Host, HostConfig, OpStatus, Permissions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two hosts in one process, over UDP on loopback. Across machines: HostConfig::xdp("eth1").
    let server = Host::open(HostConfig::udp([127, 0, 0, 1]))?;
    let client = Host::open(HostConfig::udp([127, 0, 0, 2]))?;

    // The server registers memory and grants one process of one host the right to read it.
    let region = server.register(1 << 20, Permissions::READ)?;
    region.write(4096, b"one-sided")?;
    let grant = server.grant(&region, [127, 0, 0, 2].into(), client.pid())?;

    // The client reads. The server's application takes no part in it.
    let mut portal = client.portal(16)?;
    let sink = client.register(4096, Permissions::NONE)?;
    portal.read(&grant, 4096, &sink, 0, 9)?;
    let completion = portal.wait()?;

    let mut bytes = [0; 9];
    sink.read(0, &mut bytes)?;
    assert_eq!((completion.status, &bytes), (OpStatus::Ok, b"one-sided"));
    println!("read in {:?}", completion.total_delay());
    Ok(())
}
