{{- /* Settings that all nodes need. */ -}}
{{- define "horae.env" -}}
- name: HORAE_STORE
  valueFrom:
    secretKeyRef:
      name: {{ include "horae.storeSecret" . }}
      key: {{ .Values.store.key }}
- name: HORAE_LOG
  value: json
- name: HORAE_DRAIN_SECONDS
  value: {{ .Values.drainSeconds | quote }}
{{- if .Values.encryption.existingSecret }}
- name: HORAE_ENCRYPTION_KEY
  valueFrom:
    secretKeyRef:
      name: {{ .Values.encryption.existingSecret }}
      key: {{ .Values.encryption.key }}
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: HORAE_{{ upper $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- /* Where a node listens: for the API, or for probes alone. */ -}}
{{- define "horae.listening" -}}
- name: HORAE_HOST
  value: 0.0.0.0
- name: HORAE_PORT
  value: "8765"
- name: HORAE_PROBE_PORT
  value: "8765"
{{- end }}

{{- define "horae.image" -}}
{{- $own := .image | default dict -}}
image: {{ printf "%s:%s" ($own.repository | default .root.Values.image.repository) ($own.tag | default .root.Values.image.tag | default .root.Chart.AppVersion) | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{- end }}

{{- define "horae.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "horae.probes" -}}
# Until it has started: a node waits up to a minute for its store.
startupProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end }}

{{- /* The spec of a Deployment. (dict "root" $ "component" … "replicas" … "grace" … "args" … "env" … "preStop" … "resources" … "image" …); without replicas an autoscaler sets them. */ -}}
{{- define "horae.deployment" -}}
{{- $values := .root.Values -}}
{{- if not (kindIs "invalid" .replicas) }}
replicas: {{ .replicas }}
{{- end }}
selector:
  matchLabels:
    {{- include "horae.selector" . | nindent 4 }}
strategy:
  rollingUpdate:
    maxUnavailable: 0
    maxSurge: 1
template:
  metadata:
    labels:
      {{- include "horae.labels" . | nindent 6 }}
      {{- with $values.podLabels }}{{ toYaml . | nindent 6 }}{{ end }}
    annotations:
      # So that pods are replaced when what the chart keeps in Secrets changes.
      checksum/secrets: {{ include (print .root.Template.BasePath "/secrets.yaml") .root | sha256sum }}
      {{- with $values.podAnnotations }}{{ toYaml . | nindent 6 }}{{ end }}
  spec:
    automountServiceAccountToken: false
    enableServiceLinks: false
    # Longer than the drain, which begins after the preStop.
    terminationGracePeriodSeconds: {{ .grace }}
    securityContext:
      runAsNonRoot: true
      runAsUser: 10001
      runAsGroup: 10001
      seccompProfile: {type: RuntimeDefault}
    {{- with $values.image.pullSecrets }}
    imagePullSecrets: {{ toYaml . | nindent 6 }}
    {{- end }}
    {{- with $values.priorityClassName }}
    priorityClassName: {{ . }}
    {{- end }}
    {{- if $values.migrate }}
    initContainers:
      - name: migrate
        {{- include "horae.image" . | nindent 8 }}
        args: [db, migrate]
        env: {{ include "horae.env" .root | nindent 10 }}
        resources: {{ toYaml .resources | nindent 10 }}
        securityContext: {{ include "horae.confined" . | nindent 10 }}
    {{- end }}
    containers:
      - name: horae
        {{- include "horae.image" . | nindent 8 }}
        args: {{ toYaml .args | nindent 10 }}
        env:
          {{- include "horae.env" .root | nindent 10 }}
          {{- include "horae.listening" .root | nindent 10 }}
          {{- with .env }}{{ toYaml . | nindent 10 }}{{ end }}
        ports:
          - {name: http, containerPort: 8765}
        {{- include "horae.probes" . | nindent 8 }}
        {{- with .preStop }}
        lifecycle:
          preStop:
            exec: {command: [sleep, {{ . | quote }}]}
        {{- end }}
        resources: {{ toYaml .resources | nindent 10 }}
        securityContext: {{ include "horae.confined" . | nindent 10 }}
        volumeMounts:
          - {name: tmp, mountPath: /tmp}
    volumes:
      - name: tmp
        emptyDir: {}
    topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: ScheduleAnyway
        labelSelector:
          matchLabels: {{ include "horae.selector" . | nindent 12 }}
    {{- with $values.nodeSelector }}
    nodeSelector: {{ toYaml . | nindent 6 }}
    {{- end }}
    {{- with $values.tolerations }}
    tolerations: {{ toYaml . | nindent 6 }}
    {{- end }}
    {{- with $values.affinity }}
    affinity: {{ toYaml . | nindent 6 }}
    {{- end }}
{{- end }}

{{- /* The budget of a Deployment. (dict "root" $ "component" … "name" …) */ -}}
{{- define "horae.budget" -}}
{{- if .root.Values.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  labels: {{ include "horae.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ .root.Values.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels: {{ include "horae.selector" . | nindent 6 }}
{{- end }}
{{- end }}
