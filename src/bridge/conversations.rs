//! `conversation/…`.

use bridge_protocol::conversation::{
    CancelAnswer, ChainAnswer, ConversationAnswer, ConversationPage, ConversationState, DeleteAnswer,
    EditAnswer, ForkAnswer, LineagePage, RespondAnswer, TranscriptsOnDelete,
};
use bridge_protocol::method::{
    Adopt, Cancel, Chain, Checkpoints, Close, Continue, Delete, Edit, Export, Fork, GetConversation, History,
    Import, Lineage, ListConversations, Move, NewConversation, Prompt, Reset, ResolveConversation, Respond,
    Resume, TreeOf, Undo, Update,
};
use bridge_protocol::raw::RawJson;
use bridge_protocol::turn::TurnResult;
use bridge_protocol::{BridgeError, TurnId};

use super::parameters::{
    LINEAGE_LIMITS, LIST_LIMITS, answerer, check_fidelity, check_prompt, history_part, page_limit,
    parse_place, unknown_word,
};
use super::{Act, Bridge, Outcome, handlers};
use crate::conversation::answer::CallKey;
use crate::conversation::effect::{self, Call, NewTurn};
use crate::conversation::registry::Filter;
use crate::conversation::services::chain_text;

impl Act<NewConversation> for Bridge {
    fn complete(&self, params: &mut NewConversation) {
        let catalog = &self.registry.services().catalog;
        params.agent.get_or_insert_with(|| catalog.default_agent());
    }

    async fn act(&self, params: NewConversation, request: Option<CallKey>) -> Outcome<NewConversation> {
        self.registry.create(params, request).await?.read()
    }
}

handlers! {
    ListConversations(self, params, _) {
        let limit = page_limit(params.limit, LIST_LIMITS)?;
        if params.state == Some(ConversationState::Unknown) {
            let known = "idle, prompting, awaiting, cancelling, limited, interrupted, moving, failed";
            return Err(unknown_word("state", known));
        }
        let cwd = self.registry.wanted_folder(params.cwd.as_deref()).await?;
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

    GetConversation(self, params, _) {
        let id = self.resolve(&params.conversation_id)?;
        let conversation = self.registry.view(id)?;
        Ok(ConversationAnswer { conversation })
    }

    ResolveConversation(self, params, _) {
        let found = self.registry.resolve_in_folder(&params.name, params.cwd.as_deref());
        Ok(ConversationAnswer {
            conversation: found.await?,
        })
    }

    TreeOf(self, params, _) {
        let id = self.resolve(&params.conversation_id)?;
        self.registry.tree(id).await
    }

    Update(self, params, request) {
        self.send_update(None, params, request).await
    }

    Prompt(self, params, request) {
        self.send_prompt(TurnId::mint().into(), params, request).await
    }

    Continue(self, params, request) {
        let text = params.text.as_ref();
        text.map(|text| check_prompt("text", text)).transpose()?;
        let id = params.conversation_id.clone();
        self.call(&id, Call::Continue(params), request).await
    }

    Cancel(self, params, request) {
        self.send_cancel(None, params, request).await
    }

    Resume(self, params, request) {
        check_fidelity(params.min_fidelity)?;
        let call = Call::Resume(params.min_fidelity);
        self.call_once(&params.conversation_id, call, request).await
    }

    Fork(self, params, request) {
        self.send_fork(None, params, request).await
    }

    Edit(self, params, request) {
        self.send_edit(TurnId::mint().into(), params, request).await
    }

    Undo(self, params, request) {
        let id = self.resolve(&params.conversation_id)?;
        self.registry.undo(id, request).await?.read()
    }

    Move(self, params, request) {
        let id = self.resolve(&params.conversation_id)?;
        if params.dry_run {
            return self.registry.plan_move(id, params.cwd).await;
        }
        self.registry.move_to(id, params.cwd, request).await?.read()
    }

    Chain(self, params, _) {
        let id = self.resolve(&params.conversation_id)?;
        let links = self.registry.chain(id)?;
        Ok(ChainAnswer { links })
    }

    Lineage(self, params, _) {
        let id = self.resolve(&params.conversation_id)?;
        let limit = page_limit(params.limit, LINEAGE_LIMITS)?;
        let (entries, next_cursor) = self.registry.lineage(id, params.cursor.as_ref(), limit)?;
        Ok(LineagePage { entries, next_cursor })
    }

    Checkpoints(self, params, _) {
        let id = self.resolve(&params.conversation_id)?;
        let limit = page_limit(params.limit, LIST_LIMITS)?;
        self.registry.checkpoints(id, params.before, limit).await
    }

    History(self, params, _) {
        let id = self.resolve(&params.conversation_id)?;
        let (part, limit) = history_part(params.cursor, params.limit, params.last)?;
        self.registry.history(id, part, limit, params.r#as).await
    }

    Respond(self, params, request) {
        self.send_respond(None, params, request).await
    }

    Close(self, params, request) {
        self.call_once(&params.conversation_id, Call::Close, request)
            .await
    }

    Reset(self, params, request) {
        self.call(&params.conversation_id, Call::Reset, request).await
    }

    Delete(self, params, request) {
        let erases = params.transcripts == TranscriptsOnDelete::Delete;
        let call = Call::Delete(params.transcripts);
        let answer = self.call(&params.conversation_id, call, request).await?;
        let status = self.registry.services().store.status();
        let failure = status.erasure_failure.filter(|_| erases);
        Ok(DeleteAnswer {
            not_erased: failure.map(|error| chain_text(&error)),
            ..answer
        })
    }

    Adopt(self, params, request) {
        self.registry.adopt(params, request).await?.read()
    }

    Export(self, params, request) {
        let id = self.resolve(&params.conversation_id)?;
        let (format, path, secrets) = (params.format, params.path, params.secrets);
        self.registry.export(id, format, path, secrets, request).await
    }

    Import(self, params, request) {
        self.registry.import(params, request).await?.read()
    }
}

impl Bridge {
    /// Like [`Prompt`], with a turn id chosen by the caller, who uses it to recognize and cancel the turn.
    ///
    /// # Errors
    /// Those of the method.
    pub async fn prompt(&self, turn: NewTurn, params: Prompt) -> Result<TurnResult, BridgeError> {
        self.carry_out(params, |params, request| self.send_prompt(turn, params, request))
            .await
    }

    /// Like [`Edit`], with a turn id chosen by the caller.
    ///
    /// # Errors
    /// Those of the method.
    pub async fn edit(&self, turn: NewTurn, params: Edit) -> Result<EditAnswer, BridgeError> {
        self.carry_out(params, |params, request| self.send_edit(turn, params, request))
            .await
    }

    /// Like [`Update`], with further parameters for the agent.
    ///
    /// # Errors
    /// Those of the method.
    pub async fn update(
        &self,
        of_agent: Option<RawJson>,
        params: Update,
    ) -> Result<ConversationAnswer, BridgeError> {
        self.carry_out(params, |params, request| {
            self.send_update(of_agent, params, request)
        })
        .await
    }

    /// Like [`Cancel`], with further parameters for the agent.
    ///
    /// # Errors
    /// Those of the method.
    pub async fn cancel(
        &self,
        of_agent: Option<RawJson>,
        params: Cancel,
    ) -> Result<CancelAnswer, BridgeError> {
        self.carry_out(params, |params, request| {
            self.send_cancel(of_agent, params, request)
        })
        .await
    }

    /// Like [`Fork`], with further parameters for the agent, an object.
    ///
    /// # Errors
    /// Those of the method.
    pub async fn fork(&self, of_agent: RawJson, params: Fork) -> Result<ForkAnswer, BridgeError> {
        self.carry_out(params, |params, request| {
            self.send_fork(Some(of_agent), params, request)
        })
        .await
    }

    async fn send_fork(
        &self,
        of_agent: Option<RawJson>,
        params: Fork,
        request: Option<CallKey>,
    ) -> Outcome<Fork> {
        check_fidelity(params.min_fidelity)?;
        let call = Call::Fork(effect::Fork {
            in_place: params.in_place,
            at: params.at.map(|at| parse_place(&at)).transpose()?,
            cwd: params.cwd,
            title: params.title,
            min_fidelity: params.min_fidelity,
            params: of_agent,
        });
        self.call(&params.conversation_id, call, request).await
    }

    async fn send_update(
        &self,
        of_agent: Option<RawJson>,
        params: Update,
        request: Option<CallKey>,
    ) -> Outcome<Update> {
        let id = params.conversation_id.clone();
        self.call(&id, Call::Update(params, of_agent), request).await
    }

    /// Like [`Respond`], with further members of the answer, for the agent.
    ///
    /// # Errors
    /// Those of the method.
    pub async fn respond(
        &self,
        of_agent: Option<RawJson>,
        params: Respond,
    ) -> Result<RespondAnswer, BridgeError> {
        self.carry_out(params, |params, request| {
            self.send_respond(of_agent, params, request)
        })
        .await
    }

    async fn send_respond(
        &self,
        of_agent: Option<RawJson>,
        params: Respond,
        request: Option<CallKey>,
    ) -> Outcome<Respond> {
        let call = Call::Respond(effect::Response {
            interrupt_id: params.interrupt_id,
            outcome: params.outcome,
            by: answerer(params.by)?,
            turn_id: TurnId::mint(),
            params: of_agent,
        });
        self.call(&params.conversation_id, call, request).await
    }

    async fn send_cancel(
        &self,
        of_agent: Option<RawJson>,
        params: Cancel,
        request: Option<CallKey>,
    ) -> Outcome<Cancel> {
        let id = params.conversation_id.clone();
        self.call_once(&id, Call::Cancel(params, of_agent), request).await
    }

    async fn send_prompt(&self, turn: NewTurn, params: Prompt, request: Option<CallKey>) -> Outcome<Prompt> {
        check_prompt("prompt", &params.prompt)?;
        check_fidelity(params.min_fidelity)?;
        let id = params.conversation_id.clone();
        self.call(&id, Call::Prompt(params, turn), request).await
    }

    async fn send_edit(&self, turn: NewTurn, params: Edit, request: Option<CallKey>) -> Outcome<Edit> {
        check_prompt("prompt", &params.prompt)?;
        check_fidelity(params.min_fidelity)?;
        let (id, at) = (params.conversation_id.clone(), parse_place(&params.at)?);
        self.call(&id, Call::Edit(params, at, turn), request).await
    }
}
