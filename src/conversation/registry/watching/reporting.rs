//! Reporting changes of a transcript to its conversation.

use bridge_protocol::ConversationId;
use bridge_protocol::event::Event;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::super::actor::Message;
use super::super::super::services::now;
use super::super::super::transcript_growth::TranscriptGrowth;
use super::super::Registry;

impl Registry {
    /// Reports a transcript change to its conversation or, if that has no task, to the subscribers of all conversations.
    /// Waits for room in the mailbox.
    pub(in crate::conversation::registry) async fn report_growth(
        &self,
        id: ConversationId,
        growth: TranscriptGrowth,
    ) {
        let mailbox = {
            let live = self.lock();
            let entry = live.get(&id).filter(|entry| entry.essential_lost.is_empty());
            entry.map(|entry| entry.mailbox.clone())
        };
        let undelivered = match mailbox {
            None => Some(growth),
            Some(mailbox) => send_growth(&mailbox, growth, &self.stop).await,
        };
        let Some(growth) = undelivered else { return };
        if growth.rewritten {
            let upstream_id = growth.upstream_id;
            let event = Event::ForeignWriter { upstream_id };
            self.services.hub.announce(id, &event, &now().to_string());
        }
        for checkpoint in growth.new_checkpoints {
            let event = Event::CheckpointSaved { checkpoint };
            self.services.hub.announce(id, &event, &now().to_string());
        }
    }
}

/// Sends a change to a mailbox. Waits for room until the daemon stops; returns the change if the mailbox is closed.
async fn send_growth(
    mailbox: &mpsc::Sender<Message>,
    growth: TranscriptGrowth,
    stop: &CancellationToken,
) -> Option<TranscriptGrowth> {
    let sent = tokio::select! {
        biased;
        sent = mailbox.send(Message::TranscriptGrown(Box::new(growth))) => sent,
        () = stop.cancelled() => return None,
    };
    match sent.err()?.0 {
        Message::TranscriptGrown(growth) => Some(*growth),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(prompts: u64) -> TranscriptGrowth {
        TranscriptGrowth {
            prompts: Some(prompts),
            ..TranscriptGrowth::of(&"s1".into())
        }
    }

    fn prompts(message: Option<Message>) -> Option<u64> {
        match message {
            Some(Message::TranscriptGrown(growth)) => growth.prompts,
            _ => None,
        }
    }

    #[tokio::test]
    async fn what_has_no_room_in_a_mailbox_waits_for_it() {
        let (sender, mut mailbox) = mpsc::channel(1);
        let stop = CancellationToken::new();
        assert!(send_growth(&sender, growth(1), &stop).await.is_none());
        let second = send_growth(&sender, growth(2), &stop);
        let reading = async {
            let first = mailbox.recv().await;
            (prompts(first), prompts(mailbox.recv().await))
        };
        let (left, read) = tokio::join!(second, reading);
        assert!(left.is_none());
        assert_eq!(read, (Some(1), Some(2)));
    }

    #[tokio::test]
    async fn nothing_waits_for_a_mailbox_that_nobody_reads() {
        let (sender, mailbox) = mpsc::channel(1);
        let stop = CancellationToken::new();
        assert!(send_growth(&sender, growth(1), &stop).await.is_none());
        let waiting = send_growth(&sender, growth(2), &stop);
        let stopping = async { stop.cancel() };
        // Polled first, so that it waits by then.
        assert!(tokio::join!(waiting, stopping).0.is_none());
        drop(mailbox);
        let left = send_growth(&sender, growth(3), &CancellationToken::new()).await;
        assert_eq!(left.and_then(|growth| growth.prompts), Some(3));
    }
}
