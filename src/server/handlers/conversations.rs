//! `conversation/…`.

use bridge_protocol::TurnId;
use bridge_protocol::conversation::{
    ChainAnswer, ConversationAnswer, ConversationPage, ConversationState, LineagePage, Settings,
};
use bridge_protocol::method::{
    Adopt, Cancel, Chain, Checkpoints, Close, Continue, Delete, Edit, Export, Fork, GetConversation, History,
    Import, Lineage, ListConversations, Move, NewConversation, Prompt, Reset, ResolveConversation, Respond,
    Resume, TreeOf, Undo, Update,
};

use super::parameters::{
    LINEAGE_LIMITS, LIST_LIMITS, answerer, check_fidelity, check_prompt, history_part, page_limit, place,
    unknown_word,
};
use super::{Act, Daemon, Outcome, read};
use crate::conversation::answer::Request;
use crate::conversation::effect::Call;
use crate::conversation::folder::{usable_folder, wanted_folder};
use crate::conversation::registry::Filter;

impl Act<NewConversation> for Daemon {
    fn complete(&self, params: &mut NewConversation) {
        let catalog = &self.registry.services().catalog;
        params
            .agent
            .get_or_insert_with(|| catalog.default_agent().clone());
    }

    async fn act(&self, params: NewConversation, request: Option<Request>) -> Outcome<NewConversation> {
        read(&self.registry.create(params, request).await?)
    }
}

impl Act<ListConversations> for Daemon {
    async fn act(&self, params: ListConversations, _: Option<Request>) -> Outcome<ListConversations> {
        let limit = page_limit(params.limit, LIST_LIMITS)?;
        if params.state == Some(ConversationState::Unknown) {
            let known = "idle, prompting, awaiting, cancelling, limited, interrupted, moving, failed";
            return Err(unknown_word("state", known));
        }
        let cwd = params.cwd.map(|cwd| wanted_folder("cwd", &cwd)).transpose()?;
        let filter = Filter {
            namespace: params.namespace,
            agent: params.agent,
            cwd,
            state: params.state,
            cut_short: params.cut_short,
            query: params.query,
            title: None,
        };
        let page = self.registry.list(&filter, params.cursor.as_ref(), limit);
        let (conversations, next_cursor) = page.await?;
        Ok(ConversationPage {
            conversations,
            next_cursor,
        })
    }
}

impl Act<GetConversation> for Daemon {
    async fn act(&self, params: GetConversation, _: Option<Request>) -> Outcome<GetConversation> {
        let id = self.resolve(&params.conversation_id)?;
        let conversation = self.registry.view(id)?;
        Ok(ConversationAnswer { conversation })
    }
}

impl Act<ResolveConversation> for Daemon {
    async fn act(&self, params: ResolveConversation, _: Option<Request>) -> Outcome<ResolveConversation> {
        let found = self.registry.named(&params.name, params.cwd.as_deref());
        Ok(ConversationAnswer {
            conversation: found.await?,
        })
    }
}

impl Act<TreeOf> for Daemon {
    async fn act(&self, params: TreeOf, _: Option<Request>) -> Outcome<TreeOf> {
        let id = self.resolve(&params.conversation_id)?;
        self.registry.tree(id).await
    }
}

impl Act<Update> for Daemon {
    async fn act(&self, params: Update, request: Option<Request>) -> Outcome<Update> {
        let call = Call::Update {
            title: params.title,
            settings: (params.settings != Settings::default()).then_some(params.settings),
            expected_revision: params.expected_revision,
        };
        self.call(&params.conversation_id, call, request).await
    }
}

impl Act<Prompt> for Daemon {
    async fn act(&self, params: Prompt, request: Option<Request>) -> Outcome<Prompt> {
        check_prompt("prompt", &params.prompt)?;
        check_fidelity(params.min_fidelity)?;
        let call = Call::Prompt {
            turn_id: TurnId::mint(),
            prompt: params.prompt,
            on_busy: params.on_busy,
            on_limit: params.on_limit,
            min_fidelity: params.min_fidelity,
        };
        self.call(&params.conversation_id, call, request).await
    }
}

impl Act<Continue> for Daemon {
    async fn act(&self, params: Continue, request: Option<Request>) -> Outcome<Continue> {
        let text = params.text.as_ref();
        text.map(|text| check_prompt("text", text)).transpose()?;
        let call = Call::Continue {
            at: params.at,
            text: params.text,
            cancel: params.cancel,
        };
        self.call(&params.conversation_id, call, request).await
    }
}

impl Act<Cancel> for Daemon {
    async fn act(&self, params: Cancel, request: Option<Request>) -> Outcome<Cancel> {
        let call = Call::Cancel {
            turn_id: params.turn_id,
            queued: params.queued,
        };
        self.call_once(&params.conversation_id, call, request).await
    }
}

impl Act<Resume> for Daemon {
    async fn act(&self, params: Resume, request: Option<Request>) -> Outcome<Resume> {
        check_fidelity(params.min_fidelity)?;
        let call = Call::Resume {
            min_fidelity: params.min_fidelity,
        };
        self.call_once(&params.conversation_id, call, request).await
    }
}

impl Act<Fork> for Daemon {
    async fn act(&self, params: Fork, request: Option<Request>) -> Outcome<Fork> {
        check_fidelity(params.min_fidelity)?;
        let call = Call::Fork {
            in_place: params.in_place,
            at: params.at.map(|at| place(&at)).transpose()?,
            cwd: params.cwd.map(|cwd| usable_folder("cwd", &cwd)).transpose()?,
            title: params.title,
            min_fidelity: params.min_fidelity,
        };
        self.call(&params.conversation_id, call, request).await
    }
}

impl Act<Edit> for Daemon {
    async fn act(&self, params: Edit, request: Option<Request>) -> Outcome<Edit> {
        check_prompt("prompt", &params.prompt)?;
        check_fidelity(params.min_fidelity)?;
        let call = Call::Edit {
            turn_id: TurnId::mint(),
            at: place(&params.at)?,
            prompt: params.prompt,
            min_fidelity: params.min_fidelity,
        };
        self.call(&params.conversation_id, call, request).await
    }
}

impl Act<Undo> for Daemon {
    async fn act(&self, params: Undo, request: Option<Request>) -> Outcome<Undo> {
        let id = self.resolve(&params.conversation_id)?;
        read(&self.registry.undo(id, request).await?)
    }
}

impl Act<Move> for Daemon {
    async fn act(&self, params: Move, request: Option<Request>) -> Outcome<Move> {
        let cwd = usable_folder("cwd", &params.cwd)?;
        let id = self.resolve(&params.conversation_id)?;
        if params.dry_run {
            return self.registry.plan_move(id, cwd).await;
        }
        read(&self.registry.move_to(id, cwd, request).await?)
    }
}

impl Act<Chain> for Daemon {
    async fn act(&self, params: Chain, _: Option<Request>) -> Outcome<Chain> {
        let id = self.resolve(&params.conversation_id)?;
        let links = self.registry.chain(id)?;
        Ok(ChainAnswer { links })
    }
}

impl Act<Lineage> for Daemon {
    async fn act(&self, params: Lineage, _: Option<Request>) -> Outcome<Lineage> {
        let id = self.resolve(&params.conversation_id)?;
        let limit = page_limit(params.limit, LINEAGE_LIMITS)?;
        let (entries, next_cursor) = self.registry.lineage(id, params.cursor.as_ref(), limit)?;
        Ok(LineagePage { entries, next_cursor })
    }
}

impl Act<Checkpoints> for Daemon {
    async fn act(&self, params: Checkpoints, _: Option<Request>) -> Outcome<Checkpoints> {
        let id = self.resolve(&params.conversation_id)?;
        let limit = page_limit(params.limit, LIST_LIMITS)?;
        self.registry.checkpoints(id, params.before, limit).await
    }
}

impl Act<History> for Daemon {
    async fn act(&self, params: History, _: Option<Request>) -> Outcome<History> {
        let id = self.resolve(&params.conversation_id)?;
        let (part, limit) = history_part(params.cursor, params.limit, params.last)?;
        self.registry.history(id, part, limit, params.r#as).await
    }
}

impl Act<Respond> for Daemon {
    async fn act(&self, params: Respond, request: Option<Request>) -> Outcome<Respond> {
        let call = Call::Respond {
            interrupt_id: params.interrupt_id,
            outcome: params.outcome,
            by: answerer(params.by)?,
            turn_id: TurnId::mint(),
        };
        self.call(&params.conversation_id, call, request).await
    }
}

impl Act<Close> for Daemon {
    async fn act(&self, params: Close, request: Option<Request>) -> Outcome<Close> {
        self.call_once(&params.conversation_id, Call::Close, request)
            .await
    }
}

impl Act<Reset> for Daemon {
    async fn act(&self, params: Reset, request: Option<Request>) -> Outcome<Reset> {
        self.call(&params.conversation_id, Call::Reset, request).await
    }
}

impl Act<Delete> for Daemon {
    async fn act(&self, params: Delete, request: Option<Request>) -> Outcome<Delete> {
        let call = Call::Delete {
            transcripts: params.transcripts,
        };
        self.call(&params.conversation_id, call, request).await
    }
}

impl Act<Adopt> for Daemon {
    async fn act(&self, params: Adopt, request: Option<Request>) -> Outcome<Adopt> {
        read(&self.registry.adopt(params, request).await?)
    }
}

impl Act<Export> for Daemon {
    async fn act(&self, params: Export, _: Option<Request>) -> Outcome<Export> {
        let id = self.resolve(&params.conversation_id)?;
        let registry = &self.registry;
        registry
            .export(id, params.format, params.path, params.secrets)
            .await
    }
}

impl Act<Import> for Daemon {
    async fn act(&self, params: Import, request: Option<Request>) -> Outcome<Import> {
        read(&self.registry.import(params, request).await?)
    }
}
