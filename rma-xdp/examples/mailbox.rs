//! A mailbox: several senders, messages of any length up to its buffers', one reader. Nobody has a
//! connection, and each message names its sender.

use rma_xdp::{Host, HostConfig, OpStatus, OpType, Permissions, Pid, ReceiveQueueLayout};

const SENDERS: u32 = 3;
const MESSAGES: u64 = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Eight messages of up to 128 bytes that have come and have not been read.
    let owner = Host::open(HostConfig::udp([127, 0, 0, 33]))?;
    let layout = ReceiveQueueLayout::new(8, 128)?;
    // Events wake the thread that waits with this portal.
    let mut portal = owner.portal(1)?;
    let mut mailbox = owner.receive_queue(Some(&portal), layout, Permissions::SEND)?;
    mailbox.post_all();

    let senders = (1..=SENDERS).map(|number| {
        let address = [127, 0, 0, 33 + number as u8];
        let pid = Pid(number); // grants name it
        let sender = Host::open(HostConfig::udp(address).with(|it| it.pid = pid))?;
        let grant = owner.grant(mailbox.region(), address.into(), pid, OpType::Send)?;
        println!("process {pid} may send up to {} bytes", grant.region_len);
        let mut portal = sender.portal(1)?;
        let message = sender.register(128, Permissions::NONE)?;
        Ok(std::thread::spawn(move || {
            let _open = sender;
            for count in 1..=MESSAGES {
                let text = format!("message {count} of {MESSAGES}");
                message.write(0, text.as_bytes()).expect("it fits");
                loop {
                    portal.send(&grant, &message, 0, text.len() as u32, count).expect("a slot");
                    match portal.wait().expect("it is under way").status {
                        OpStatus::Ok => break,
                        // The reader is slow: no receive is posted. Nothing was sent twice.
                        OpStatus::RemoteNotReady => std::thread::yield_now(),
                        other => panic!("{other}"),
                    }
                }
            }
        }))
    });
    let senders: Result<Vec<_>, rma_xdp::HostError> = senders.collect();

    for _ in 0..u64::from(SENDERS) * MESSAGES {
        let event = portal.wait_event(&mut mailbox)?;
        let mut text = vec![0; event.len as usize];
        mailbox.read(&event, &mut text)?;
        mailbox.post(event.receive)?; // room for the next message
        println!("{}, process {}: {}", event.initiator, event.pid, String::from_utf8(text)?);
    }
    senders?.into_iter().for_each(|sender| sender.join().expect("all was sent"));
    Ok(())
}
